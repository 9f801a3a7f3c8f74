/* ---- health ------------------------------------------------------------------------------------ */
API nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t t, nvmlEccCounterType_t c, u64_t *n)
{ ENTER(d); NEED(n); char k[64]; LEAVE(get_u64(d, keyf(k, "ecc.%u.%u", t, c), n)); }       /* type 0 corrected 1 not; counter 0 volatile 1 aggregate */
API nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t d, nvmlMemoryErrorType_t t, nvmlEccCounterType_t c, nvmlMemoryLocation_t l, u64_t *n)
{ ENTER(d); NEED(n); char k[64]; LEAVE(l == 2 ? get_u64(d, keyf(k, "ecc.%u.%u", t, c), n) : NOTSUP); }  /* all in device memory */
API nvmlDeviceGetRetiredPages(nvmlDevice_t d, nvmlPageRetirementCause_t cause, unsigned *n, u64_t *addr)
{
    ENTER(d); NEED(n);
    char k[64];
    unsigned have;
    int rc = get_u32(d, keyf(k, "retired.%u", cause, 0), &have);
    if (rc) LEAVE(rc);
    unsigned room = *n;
    *n = have;
    if (room < have || (have && !addr)) LEAVE(TOOSMALL);
    for (unsigned i = 0; i < have; i++) addr[i] = 0x1000ull * (i + 1);
    LEAVE(OK);
}
API nvmlDeviceGetRemappedRows(nvmlDevice_t d, unsigned *cor, unsigned *unc, unsigned *pending, unsigned *failed)
{
    ENTER(d); NEED(cor && unc && pending && failed);
    const char *v = get(d, "remapped");                     /* "cor unc pending failed" */
    int rc = rc_of(v);
    if (!rc) sscanf(v, "%u %u %u %u", cor, unc, pending, failed);
    LEAVE(rc);
}
API nvmlDeviceGetViolationStatus(nvmlDevice_t d, nvmlPerfPolicyType_t p, nvmlViolationTime_t *t)
{
    ENTER(d); NEED(t);
    char k[64];
    u64_t ns;
    int rc = get_u64(d, keyf(k, "violation.%u", p, 0), &ns);
    if (!rc) t->violationTime = ns, t->referenceTime = now_us();
    LEAVE(rc);
}
API nvmlDeviceGetNvLinkCapability(nvmlDevice_t d, unsigned link, nvmlNvLinkCapability_t c, unsigned *v)
{ ENTER(d); NEED(v); char k[64]; (void)c; *v = 1; LEAVE(rc_of(get(d, keyf(k, "nvlink.%u.state", link, 0)))); }
API nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t d, unsigned link, nvmlNvLinkErrorCounter_t c, u64_t *v)
{ ENTER(d); NEED(v); char k[64]; LEAVE(get_u64(d, keyf(k, "nvlink.%u.err.%u", link, c), v)); }
API nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned link, nvmlPciInfo_t *p)
{
    ENTER(d); NEED(p);
    char k[64];
    unsigned peer;
    int rc = get_u32(d, keyf(k, "nvlink.%u.peer", link, 0), &peer);
    if (rc) LEAVE(rc);
    memset(p, 0, sizeof *p);
    return pci((void *)&gpus[peer % MAXGPU], p, 3);
}
/* field.ID or field.ID.SCOPE; per-field result codes, one entry each. The type returned is
 * UNSIGNED_LONG_LONG but for the few 32-bit fields. */
API nvmlDeviceGetFieldValues(nvmlDevice_t d, int n, nvmlFieldValue_t *f)
{
    ENTER(d); NEED(f && n > 0);
    for (int i = 0; i < n; i++) {
        char k[64];
        const char *v = get(d, keyf(k, "field.%u.%u", f[i].fieldId, f[i].scopeId));
        if (!v) v = get(d, keyf(k, "field.%u", f[i].fieldId, 0));
        f[i].timestamp = now_us();
        f[i].latencyUsec = 0;
        f[i].nvmlReturn = rc_of(v);
        if (f[i].nvmlReturn) continue;
        unsigned id = f[i].fieldId;
        f[i].valueType = id == 82 || id == 91 || (id >= 185 && id <= 196) ? 1 : 3;
        f[i].value.ullVal = num_of(v);
    }
    LEAVE(OK);
}
API nvmlDeviceGetSamples(nvmlDevice_t d, nvmlSamplingType_t type, u64_t last, nvmlValueType_t *vt, unsigned *n, nvmlSample_t *s)
{
    static const char *key[] = { "power", "util", "util.mem", "enc", "dec", "clock.1", "clock.2" };
    ENTER(d); NEED(vt && n);
    unsigned v;
    if ((unsigned)type >= sizeof key / sizeof *key) LEAVE(NOTSUP);
    int rc = get_u32(d, key[type], &v);
    u64_t t = now_us();
    if (rc) LEAVE(rc);
    *vt = 1;
    if (s && *n < 6) LEAVE(TOOSMALL);
    for (int i = 0; s && i < 6; i++) s[i].timeStamp = t - (5 - i) * 166666, s[i].sampleValue.uiVal = v;   /* 6 samples of 1/6 s */
    *n = 6;
    LEAVE(last >= t ? NOTFOUND : OK);
}

