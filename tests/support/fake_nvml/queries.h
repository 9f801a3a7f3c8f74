/* ---- one-value queries ---------------------------------------------------------------- */
#define U32(fn, T, key) API fn(nvmlDevice_t d, T *v) \
    { ENTER(d); NEED(v); unsigned x; int rc = get_u32(d, key, &x); if (!rc) *v = (T)x; LEAVE(rc); }
#define U64(fn, key) API fn(nvmlDevice_t d, u64_t *v) { ENTER(d); NEED(v); LEAVE(get_u64(d, key, v)); }
#define STR(fn, key) API fn(nvmlDevice_t d, char *v, unsigned n) { ENTER(d); NEED(v); LEAVE(get_str(d, key, v, n)); }
#define SYS(fn, key) API fn(char *v, unsigned n) { ENTER(NULL); NEED(v); LEAVE(get_str(NULL, key, v, n)); }
#define PAIR(fn, T, k1, k2) API fn(nvmlDevice_t d, T *a, T *b) \
    { ENTER(d); NEED(a && b); unsigned x, y; int rc = get_u32(d, k1, &x); if (!rc) { *a = (T)x; *b = (T)(get_u32(d, k2, &y) ? x : y); } LEAVE(rc); }
#define IDX(fn, IT, T, fmt) API fn(nvmlDevice_t d, IT i, T *v) \
    { ENTER(d); NEED(v); char k[64]; unsigned x; int rc = get_u32(d, keyf(k, fmt, (unsigned)i, 0), &x); if (!rc) *v = (T)x; LEAVE(rc); }

SYS(nvmlSystemGetDriverVersion, "driver")
SYS(nvmlSystemGetNVMLVersion, "nvml")
STR(nvmlDeviceGetName, "name")
STR(nvmlDeviceGetUUID, "uuid")
STR(nvmlDeviceGetSerial, "serial")
STR(nvmlDeviceGetVbiosVersion, "vbios")
STR(nvmlDeviceGetBoardPartNumber, "part")
U32(nvmlDeviceGetMinorNumber, unsigned, "minor")
U32(nvmlDeviceGetBoardId, unsigned, "board")
U32(nvmlDeviceGetModuleId, unsigned, "module")
U32(nvmlDeviceGetBrand, nvmlBrandType_t, "brand")
U32(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, "arch")
U32(nvmlDeviceGetNumGpuCores, unsigned, "cores")
U32(nvmlDeviceGetMemoryBusWidth, unsigned, "mem.bus")
U32(nvmlDeviceGetNumaNodeId, unsigned, "numa")
U32(nvmlDeviceGetPowerUsage, unsigned, "power")
U32(nvmlDeviceGetPowerManagementLimit, unsigned, "power.limit")
U32(nvmlDeviceGetEnforcedPowerLimit, unsigned, "power.enforced")
U32(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, "power.default")
U32(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, "power.mode")
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, unsigned, "power.min", "power.max")
U32(nvmlDeviceGetPerformanceState, nvmlPstates_t, "pstate")
U32(nvmlDeviceGetPowerState, nvmlPstates_t, "pstate")
U32(nvmlDeviceGetFanSpeed, unsigned, "fan")
U32(nvmlDeviceGetNumFans, unsigned, "fans")
IDX(nvmlDeviceGetFanSpeed_v2, unsigned, unsigned, "fan")
IDX(nvmlDeviceGetTemperature, nvmlTemperatureSensors_t, unsigned, "temp")
IDX(nvmlDeviceGetTemperatureThreshold, nvmlTemperatureThresholds_t, unsigned, "temp.limit.%u")   /* 0 shutdown 1 slowdown 2 mem 3 gpu max */
IDX(nvmlDeviceGetClockInfo, nvmlClockType_t, unsigned, "clock.%u")                                /* 0 graphics 1 sm 2 mem 3 video */
IDX(nvmlDeviceGetMaxClockInfo, nvmlClockType_t, unsigned, "clock.max.%u")
IDX(nvmlDeviceGetApplicationsClock, nvmlClockType_t, unsigned, "clock.app.%u")
IDX(nvmlDeviceGetDefaultApplicationsClock, nvmlClockType_t, unsigned, "clock.app.%u")
IDX(nvmlDeviceGetPcieThroughput, nvmlPcieUtilCounter_t, unsigned, "pcie.%u")                      /* 0 tx 1 rx, KB/s */
U32(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, "pcie.gen")
U32(nvmlDeviceGetCurrPcieLinkWidth, unsigned, "pcie.width")
U32(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, "pcie.gen.max")
U32(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, "pcie.gen.max")
U32(nvmlDeviceGetMaxPcieLinkWidth, unsigned, "pcie.width.max")
U32(nvmlDeviceGetPcieReplayCounter, unsigned, "pcie.replay")
U32(nvmlDeviceGetPcieSpeed, unsigned, "pcie.speed")
PAIR(nvmlDeviceGetEccMode, nvmlEnableState_t, "ecc", "ecc.pending")
U32(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t, "retired.pending")
U32(nvmlDeviceGetComputeMode, nvmlComputeMode_t, "compute_mode")                                  /* 0 default 2 prohibited 3 exclusive process */
U32(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, "persistence")
U32(nvmlDeviceGetDisplayMode, nvmlEnableState_t, "display")
U32(nvmlDeviceGetDisplayActive, nvmlEnableState_t, "display")
U32(nvmlDeviceGetAccountingMode, nvmlEnableState_t, "accounting")
U32(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t, "virt")
PAIR(nvmlDeviceGetDriverModel, nvmlDriverModel_t, "driver_model", "driver_model")
PAIR(nvmlDeviceGetDriverModel_v2, nvmlDriverModel_t, "driver_model", "driver_model")
PAIR(nvmlDeviceGetGpuOperationMode, nvmlGpuOperationMode_t, "gom", "gom")
PAIR(nvmlDeviceGetEncoderUtilization, unsigned, "enc", "enc.period")
PAIR(nvmlDeviceGetDecoderUtilization, unsigned, "dec", "enc.period")
PAIR(nvmlDeviceGetJpgUtilization, unsigned, "jpg", "enc.period")
PAIR(nvmlDeviceGetOfaUtilization, unsigned, "ofa", "enc.period")
U64(nvmlDeviceGetCurrentClocksThrottleReasons, "throttle")
U64(nvmlDeviceGetCurrentClocksEventReasons, "throttle")
U64(nvmlDeviceGetSupportedClocksThrottleReasons, "throttle.supported")
U64(nvmlDeviceGetSupportedClocksEventReasons, "throttle.supported")
IDX(nvmlDeviceGetNvLinkState, unsigned, nvmlEnableState_t, "nvlink.%u.state")
IDX(nvmlDeviceGetNvLinkVersion, unsigned, unsigned, "nvlink.%u.version")
PAIR(nvmlDeviceGetMigMode, unsigned, "mig.mode", "mig.pending")
U32(nvmlDeviceGetMaxMigDeviceCount, unsigned, "mig.max")
U32(nvmlDeviceGetGpuInstanceId, unsigned, "gi")
U32(nvmlDeviceGetComputeInstanceId, unsigned, "ci")

/* ---- what can be set ------------------------------------------------------------------ */
static int store(const void *d, const char *key, unsigned value)           /* replaces the state file, as state.py does */
{
    char name[96], partial[4096];
    const char *path = getenv("FAKE_NVML_STATE");
    snprintf(name, sizeof name, "%d.%s", DEV(d)->gpu, key);
    snprintf(partial, sizeof partial, "%s.set", path);
    FILE *f = fopen(partial, "w");
    if (!f) return 999;
    for (size_t i = 0; i < S.n; i++)
        if (strcmp(S.kv[i].k, name)) fprintf(f, "%s=%s\n", S.kv[i].k, S.kv[i].v);
    fprintf(f, "%s=%u\n", name, value);
    return fclose(f) || rename(partial, path) ? 999 : OK;
}
API nvmlDeviceSetComputeMode(nvmlDevice_t d, nvmlComputeMode_t mode)
{ ENTER(d); unsigned x; int rc = geteuid() ? 4 : get_u32(d, "compute_mode", &x); LEAVE(rc ? rc : mode > 3 ? BADARG : store(d, "compute_mode", mode)); }

/* ---- library, system, handles ------------------------------------------------------------ */
static int init(const char *fn)
{
    int rc = enter(fn, NULL, 0);
    if (rc) return rc;
    if (!S.text) LEAVE(9);                                  /* no state file: driver not loaded */
    for (int g = 0; g < MAXGPU; g++) {
        gpus[g] = (struct fk_dev){ g, -1 };
        for (int m = 0; m < MAXMIG; m++) migs[g][m] = (struct fk_dev){ g, m };
    }
    inits++;
    LEAVE(OK);
}
API nvmlInit(void) { return init("nvmlInit"); }
API nvmlInit_v2(void) { return init("nvmlInit_v2"); }
API nvmlInitWithFlags(unsigned flags) { (void)flags; return init("nvmlInit"); }
API nvmlShutdown(void) { ENTER(NULL); inits--; LEAVE(OK); }

static int cuda(int *v) { unsigned x = 0; NEED(v); int rc = get_u32(NULL, "cuda", &x); *v = x; LEAVE(rc); }
API nvmlSystemGetCudaDriverVersion(int *v) { ENTER(NULL); return cuda(v); }
API nvmlSystemGetCudaDriverVersion_v2(int *v) { ENTER(NULL); return cuda(v); }
API nvmlSystemGetProcessName(unsigned pid, char *name, unsigned n)
{
    ENTER(NULL); NEED(name && n);
    char path[64], buf[4096];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *f = fopen(path, "r");
    if (!f) LEAVE(NOTFOUND);
    buf[fread(buf, 1, sizeof buf - 1, f)] = 0;
    fclose(f);
    snprintf(name, n, "%s", buf);
    LEAVE(OK);
}

static unsigned ngpu(void) { unsigned n = 0; get_u32(NULL, "count", &n); return n > MAXGPU ? MAXGPU : n; }
API nvmlDeviceGetCount_v2(unsigned *n) { ENTER(NULL); NEED(n); *n = ngpu(); LEAVE(OK); }
API nvmlDeviceGetCount(unsigned *n) { return nvmlDeviceGetCount_v2(n); }

static int handle(const char *fn, unsigned i, nvmlDevice_t *d)     /* holding L: faults of that GPU apply */
{
    if (!d || i >= ngpu()) LEAVE(BADARG);
    const char *v = rule("fault", fn, &gpus[i]);
    if (v && atoi(v)) LEAVE(atoi(v));
    *d = (void *)&gpus[i];
    LEAVE(OK);
}
API nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *d) { ENTER(NULL); return handle(__func__, i, d); }
API nvmlDeviceGetHandleByIndex(unsigned i, nvmlDevice_t *d) { ENTER(NULL); return handle(__func__, i, d); }

static int by_text(const char *fn, const char *key, const char *text, nvmlDevice_t *d)
{
    const char *v;
    NEED(text && d);
    for (unsigned g = 0, n = ngpu(); g < n; g++) {
        if ((v = get(&gpus[g], key)) && !strcasecmp(v, text)) return handle(fn, g, d);
        for (int m = 0; m < MAXMIG; m++)
            if ((v = get(&migs[g][m], key)) && !strcasecmp(v, text)) { *d = (void *)&migs[g][m]; LEAVE(OK); }
    }
    LEAVE(NOTFOUND);
}
API nvmlDeviceGetHandleByUUID(const char *s, nvmlDevice_t *d) { ENTER(NULL); return by_text(__func__, "uuid", s, d); }
API nvmlDeviceGetHandleBySerial(const char *s, nvmlDevice_t *d) { ENTER(NULL); return by_text(__func__, "serial", s, d); }
API nvmlDeviceGetHandleByPciBusId_v2(const char *s, nvmlDevice_t *d) { ENTER(NULL); return by_text(__func__, "pci", s, d); }
API nvmlDeviceGetHandleByPciBusId(const char *s, nvmlDevice_t *d) { return nvmlDeviceGetHandleByPciBusId_v2(s, d); }

API nvmlDeviceGetIndex(nvmlDevice_t d, unsigned *i)
{ ENTER(d); NEED(i); *i = DEV(d)->mig < 0 ? DEV(d)->gpu : DEV(d)->mig; LEAVE(OK); }

static int pci(nvmlDevice_t d, nvmlPciInfo_t *p, int version)
{
    const char *v = get(d, "pci");                          /* 00000000:3B:00.0 */
    NEED(p);
    if (rc_of(v)) LEAVE(rc_of(v));
    sscanf(v, "%x:%x:%x", &p->domain, &p->bus, &p->device);
    snprintf(p->busIdLegacy, sizeof p->busIdLegacy, "%04X:%02X:%02X.0", p->domain & 0xffff, p->bus & 0xff, p->device & 0xff);
    get_u32(d, "pci.id", &p->pciDeviceId);
    if (version > 1) get_u32(d, "pci.subsys", &p->pciSubSystemId);
    if (version > 2) snprintf(p->busId, sizeof p->busId, "%08X:%02X:%02X.0", p->domain, p->bus & 0xff, p->device & 0xff);
    LEAVE(OK);
}
API nvmlDeviceGetPciInfo(nvmlDevice_t d, nvmlPciInfo_t *p) { ENTER(d); return pci(d, p, 1); }
API nvmlDeviceGetPciInfo_v2(nvmlDevice_t d, nvmlPciInfo_t *p) { ENTER(d); return pci(d, p, 2); }
API nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *p) { ENTER(d); return pci(d, p, 3); }

API nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor)
{
    ENTER(d); NEED(major && minor);
    const char *v = get(d, "cc");
    int rc = rc_of(v);
    if (!rc) sscanf(v, "%d.%d", major, minor);
    LEAVE(rc);
}

/* ---- MIG ----------------------------------------------------------------------------------- */
API nvmlDeviceIsMigDeviceHandle(nvmlDevice_t d, unsigned *is) { ENTER(d); NEED(is); *is = DEV(d)->mig >= 0; LEAVE(OK); }
API nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t m, nvmlDevice_t *d)
{ ENTER(m); NEED(d); if (DEV(m)->mig < 0) LEAVE(BADARG); *d = (void *)&gpus[DEV(m)->gpu]; LEAVE(OK); }
API nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned i, nvmlDevice_t *m)
{
    ENTER(d); NEED(m);
    if (i >= MAXMIG) LEAVE(BADARG);
    if (!get(&migs[DEV(d)->gpu][i], "uuid")) LEAVE(get(d, "mig.max") ? NOTFOUND : NOTSUP);
    *m = (void *)&migs[DEV(d)->gpu][i];
    LEAVE(OK);
}
API nvmlDeviceGetAttributes_v2(nvmlDevice_t d, nvmlDeviceAttributes_t *a)
{
    ENTER(d); NEED(a);
    u64_t total = 0;
    memset(a, 0, sizeof *a);
    int rc = get_u32(d, "sms", &a->multiprocessorCount);
    if (rc || DEV(d)->mig < 0) LEAVE(rc ? rc : NOTSUP);
    get_u32(d, "slices", &a->gpuInstanceSliceCount);
    a->computeInstanceSliceCount = a->gpuInstanceSliceCount;
    get_u64(d, "mem.total", &total);
    a->memorySizeMB = total >> 20;
    a->sharedCopyEngineCount = 1;
    LEAVE(OK);
}
API nvmlDeviceGetAttributes(nvmlDevice_t d, nvmlDeviceAttributes_t *a) { return nvmlDeviceGetAttributes_v2(d, a); }

/* ---- memory, utilization, energy ------------------------------------------------------------- */
static int mem(nvmlDevice_t d, u64_t *total, u64_t *used, u64_t *reserved)
{
    int rc = get_u64(d, "mem.total", total);
    if (!rc) rc = get_u64(d, "mem.used", used);
    if (get_u64(d, "mem.reserved", reserved)) *reserved = 0;
    return rc;
}
API nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m)      /* v1: used includes reserved */
{
    ENTER(d); NEED(m);
    u64_t t, u, r;
    int rc = mem(d, &t, &u, &r);
    if (!rc) *m = (nvmlMemory_t){ .total = t, .used = u + r, .free = t - u - r };
    LEAVE(rc);
}
API nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *m)
{
    ENTER(d); NEED(m);
    u64_t t, u, r;
    if (m->version != (sizeof *m | 2u << 24)) LEAVE(VERSION);
    int rc = mem(d, &t, &u, &r);
    if (!rc) *m = (nvmlMemory_v2_t){ .version = m->version, .total = t, .reserved = r, .used = u, .free = t - u - r };
    LEAVE(rc);
}
API nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t d, nvmlBAR1Memory_t *b)
{
    ENTER(d); NEED(b);
    u64_t t, u = 0;
    int rc = get_u64(d, "bar1.total", &t);
    get_u64(d, "bar1.used", &u);
    if (!rc) b->bar1Total = t, b->bar1Used = u, b->bar1Free = t - u;
    LEAVE(rc);
}
API nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u)
{
    ENTER(d); NEED(u);
    int rc = get_u32(d, "util", &u->gpu);
    if (!rc) rc = get_u32(d, "util.mem", &u->memory);
    LEAVE(rc);
}
API nvmlDeviceGetTemperatureV(nvmlDevice_t d, nvmlTemperature_t *t)
{
    ENTER(d); NEED(t);
    if (t->version != (sizeof *t | 1u << 24)) LEAVE(VERSION);
    LEAVE(get_u32(d, "temp", (unsigned *)&t->temperature));
}
/* energy (mJ); with energy.since=UNIXTIME it grows by power from then on */
API nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t d, u64_t *mj)
{
    ENTER(d); NEED(mj);
    const char *since = get(d, "energy.since");
    unsigned mw = 0;
    int rc = get_u64(d, "energy", mj);
    if (!rc && since && !get_u32(d, "power", &mw)) *mj += (u64_t)((now_us() / 1e6 - atof(since)) * mw);
    LEAVE(rc);
}
API nvmlDeviceGetClock(nvmlDevice_t d, nvmlClockType_t t, nvmlClockId_t id, unsigned *mhz)
{ ENTER(d); NEED(mhz); char k[64]; LEAVE(get_u32(d, keyf(k, id == 0 ? "clock.%u" : "clock.app.%u", t, 0), mhz)); }

