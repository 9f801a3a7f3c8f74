/* ---- processes: "PID:MEM[:SM[:MEMUTIL[:ENC[:DEC]]]] ..." ------------------------------------------- */
struct proc { unsigned pid; u64_t mem; unsigned util[4], gi, ci; int has_util; };
static unsigned procs_of(const void *d, const char *key, struct proc *out, unsigned n)
{
    const char *p = get(d, key);
    if (rc_of(p)) return n;
    for (; n < MAXPROC && *(p += strspn(p, " ,")); n++) {
        struct proc *o = &out[n];
        *o = (struct proc){ .pid = number(&p), .gi = ~0u, .ci = ~0u };
        if (*p == ':') p++, o->mem = number(&p);
        for (int i = 0; i < 4 && *p == ':'; i++) p++, o->util[i] = number(&p), o->has_util = 1;
        if (DEV(d)->mig >= 0) get_u32(d, "gi", &o->gi), get_u32(d, "ci", &o->ci);
        p += strcspn(p, " ,");
    }
    return n;
}
static int procs(nvmlDevice_t d, const char *key, struct proc *out, unsigned *n)
{
    int rc = rc_of(get(d, key));
    if (rc) return rc;
    *n = procs_of(d, key, out, 0);
    for (int m = 0; DEV(d)->mig < 0 && m < MAXMIG; m++)     /* a GPU lists its MIG devices' processes too */
        *n = procs_of(&migs[DEV(d)->gpu][m], key, out, *n);
    return OK;
}
#define ROOM(have, n, arr) do { unsigned room_ = *(n); *(n) = (have); if (room_ < (have) || ((have) && !(arr))) LEAVE(TOOSMALL); } while (0)
#define PROCS(fn, T, key, EXTRA) API fn(nvmlDevice_t d, unsigned *n, T *o) { \
    ENTER(d); NEED(n); struct proc p[MAXPROC]; unsigned have = 0; int rc = procs(d, key, p, &have); if (rc) LEAVE(rc); \
    ROOM(have, n, o); \
    for (unsigned i = 0; i < have; i++) { o[i].pid = p[i].pid; o[i].usedGpuMemory = p[i].mem; EXTRA } LEAVE(OK); }
#define INST o[i].gpuInstanceId = p[i].gi; o[i].computeInstanceId = p[i].ci;
/* `layout=535` in the state: drivers 535.43-535.98 wrote 32-byte rows under the _v3 name */
#define PROCS_V3(fn, key) API fn(nvmlDevice_t d, unsigned *n, nvmlProcessInfo_t *out) { \
    ENTER(d); NEED(n); struct proc p[MAXPROC]; unsigned have = 0; int rc = procs(d, key, p, &have); if (rc) LEAVE(rc); \
    ROOM(have, n, out); \
    const char *layout = find("layout"); \
    if (layout && !strcmp(layout, "535")) { nvmlProcessDetail_v1_t *o = (void *)out; \
        for (unsigned i = 0; i < have; i++) { o[i].pid = p[i].pid; o[i].usedGpuMemory = p[i].mem; INST o[i].usedGpuCcProtectedMemory = 0; } LEAVE(OK); } \
    nvmlProcessInfo_t *o = out; \
    for (unsigned i = 0; i < have; i++) { o[i].pid = p[i].pid; o[i].usedGpuMemory = p[i].mem; INST } LEAVE(OK); }
#define PROCS123(fn, key) PROCS(fn, nvmlProcessInfo_v1_t, key, ) PROCS(fn##_v2, nvmlProcessInfo_v2_t, key, INST) PROCS_V3(fn##_v3, key)
PROCS123(nvmlDeviceGetComputeRunningProcesses, "procs")
PROCS123(nvmlDeviceGetGraphicsRunningProcesses, "procs.graphics")
PROCS123(nvmlDeviceGetMPSComputeRunningProcesses, "procs.mps")

API nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t d, nvmlProcessDetailList_t *l)
{
    static const char *key[] = { "procs", "procs.graphics", "procs.mps" };
    ENTER(d); NEED(l);
    struct proc p[MAXPROC];
    unsigned have = 0;
    if (l->version != (sizeof *l | 1u << 24)) LEAVE(VERSION);
    if (l->mode > 2) LEAVE(BADARG);
    int rc = procs(d, key[l->mode], p, &have);
    if (rc) LEAVE(rc);
    ROOM(have, &l->numProcArrayEntries, l->procArray);
    for (unsigned i = 0; i < have; i++)
        l->procArray[i] = (nvmlProcessDetail_v1_t){ p[i].pid, p[i].mem, p[i].gi, p[i].ci, NA };
    LEAVE(OK);
}

static int util_procs(nvmlDevice_t d, u64_t last, struct proc *p, unsigned *n, u64_t *t)
{
    unsigned all = 0, k = 0;
    int rc = procs(d, "procs", p, &all);
    all = rc ? 0 : procs_of(d, "procs.mps", p, all);
    for (unsigned i = 0; i < all; i++) if (p[i].has_util) p[k++] = p[i];
    *n = k;
    *t = now_us();
    return rc ? rc : !k || last >= *t ? NOTFOUND : OK;      /* the driver has no newer sample */
}
API nvmlDeviceGetProcessUtilization(nvmlDevice_t d, nvmlProcessUtilizationSample_t *s, unsigned *n, u64_t last)
{
    ENTER(d); NEED(n);
    struct proc p[MAXPROC];
    unsigned have;
    u64_t t;
    int rc = util_procs(d, last, p, &have, &t);
    if (rc) LEAVE(rc);
    ROOM(have, n, s);
    for (unsigned i = 0; i < have; i++)
        s[i] = (nvmlProcessUtilizationSample_t){ p[i].pid, t, p[i].util[0], p[i].util[1], p[i].util[2], p[i].util[3] };
    LEAVE(OK);
}
API nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t d, nvmlProcessesUtilizationInfo_t *u)
{
    ENTER(d); NEED(u);
    struct proc p[MAXPROC];
    unsigned have;
    u64_t t;
    if (u->version != (sizeof *u | 1u << 24)) LEAVE(VERSION);
    int rc = util_procs(d, u->lastSeenTimeStamp, p, &have, &t);
    if (rc) LEAVE(rc);
    ROOM(have, &u->processSamplesCount, u->procUtilArray);
    for (unsigned i = 0; i < have; i++)
        u->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){ t, p[i].pid, p[i].util[0], p[i].util[1], p[i].util[2], p[i].util[3], 0, 0 };
    LEAVE(OK);
}

/* only its presence matters: with it and without GetRunningProcessDetailList, _v3 rows have the 535 layout */
API nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t d, void *info) { ENTER(d); NEED(info); LEAVE(NOTSUP); }
