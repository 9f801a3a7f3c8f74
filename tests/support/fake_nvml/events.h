/* ---- topology -------------------------------------------------------------------------------- */
API nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *l)
{
    ENTER(a); NEED(known(b) && l);
    unsigned na = 0, nb = 0;
    int rc = get_u32(a, "numa", &na);
    get_u32(b, "numa", &nb);
    *l = DEV(a)->gpu == DEV(b)->gpu ? 0 : na == nb ? 40 : 50;   /* internal, NUMA node, system */
    LEAVE(rc);
}
API nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t i, nvmlGpuP2PStatus_t *s)
{ ENTER(a); NEED(known(b) && s); (void)i; unsigned x; int rc = get_u32(a, "p2p", &x); if (!rc) *s = x; LEAVE(rc); }
static int cpuset(nvmlDevice_t d, const char *key, unsigned n, unsigned long *set)
{
    NEED(set && n);
    u64_t mask;
    int rc = get_u64(d, key, &mask);
    if (!rc) memset(set, 0, n * sizeof *set), set[0] = mask;
    LEAVE(rc);
}
API nvmlDeviceGetCpuAffinity(nvmlDevice_t d, unsigned n, unsigned long *s) { ENTER(d); return cpuset(d, "cpus", n, s); }
API nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t d, unsigned n, unsigned long *s, nvmlAffinityScope_t sc) { ENTER(d); (void)sc; return cpuset(d, "cpus", n, s); }
API nvmlDeviceGetMemoryAffinity(nvmlDevice_t d, unsigned n, unsigned long *s, nvmlAffinityScope_t sc) { ENTER(d); (void)sc; return cpuset(d, "mems", n, s); }

/* ---- setters: checked and logged, never stored (SetComputeMode is: queries.h) ---------------------- */
#define SET(fn, args) API fn args { ENTER(d); LEAVE(geteuid() ? 4 : OK); }
SET(nvmlDeviceSetPersistenceMode, (nvmlDevice_t d, nvmlEnableState_t x) )
SET(nvmlDeviceSetPowerManagementLimit, (nvmlDevice_t d, unsigned x) )
SET(nvmlDeviceSetGpuLockedClocks, (nvmlDevice_t d, unsigned x, unsigned y) )
SET(nvmlDeviceResetGpuLockedClocks, (nvmlDevice_t d) )
SET(nvmlDeviceSetAccountingMode, (nvmlDevice_t d, nvmlEnableState_t x) )

/* ---- events: `N.xid=SEQ:CODE`; a changed value is one XID event ------------------------------------ */
struct fk_set { int fd; char seen[MAXGPU][32]; unsigned char on[MAXGPU]; };
/* as a real driver, a wait costs nothing until something happens: no polling that would be counted as the consumer's CPU */
static int watch_folder(void)
{
    char folder[4096];
    const char *path = getenv("FAKE_NVML_STATE");
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    snprintf(folder, sizeof folder, "%s", path ? path : ".");
    inotify_add_watch(fd, dirname(folder), IN_MOVED_TO | IN_CLOSE_WRITE);
    return fd;
}
static void wait_change(int fd, u64_t end)
{
    char drain[4096];
    u64_t now = now_us();
    struct pollfd p = { .fd = fd, .events = POLLIN };
    if (poll(&p, 1, end > now ? (end - now) / 1000 + 1 : 0) > 0) while (read(fd, drain, sizeof drain) > 0) { }
}
API nvmlEventSetCreate(nvmlEventSet_t *s) { ENTER(NULL); NEED(s); *s = calloc(1, sizeof(struct fk_set)); ((struct fk_set *)*s)->fd = watch_folder(); LEAVE(OK); }
API nvmlEventSetFree(nvmlEventSet_t s) { ENTER(NULL); if (s) close(((struct fk_set *)s)->fd); free(s); LEAVE(OK); }
API nvmlDeviceGetSupportedEventTypes(nvmlDevice_t d, u64_t *t) { ENTER(d); NEED(t); *t = 0x8; LEAVE(OK); }
API nvmlDeviceRegisterEvents(nvmlDevice_t d, u64_t types, nvmlEventSet_t set)
{
    ENTER(d); NEED(set);
    struct fk_set *s = (void *)set;
    const char *v = get(d, "xid");
    if (types & ~0x8ull) LEAVE(NOTSUP);                     /* XidCriticalError only */
    s->on[DEV(d)->gpu] = 1;
    snprintf(s->seen[DEV(d)->gpu], sizeof s->seen[0], "%s", v ? v : "");
    LEAVE(OK);
}
static int wait_event(nvmlEventSet_t set, nvmlEventData_t *e, unsigned ms, int version)   /* L held; blocks until the state's folder changes */
{
    struct fk_set *s = (void *)set;
    NEED(s && e);
    unsigned scanned = generation - 1;
    for (u64_t end = now_us() + ms * 1000ull;; reload()) {
        for (int g = 0; g < MAXGPU && scanned != generation; g++) {
            const char *v = s->on[g] ? get(&gpus[g], "xid") : NULL;
            if (!v || !strcmp(v, s->seen[g])) continue;
            snprintf(s->seen[g], sizeof s->seen[0], "%s", v);
            e->device = (void *)&gpus[g];
            e->eventType = 0x8;
            e->eventData = strchr(v, ':') ? strtoull(strchr(v, ':') + 1, NULL, 0) : 999;
            if (version > 1) e->gpuInstanceId = e->computeInstanceId = ~0u;
            LEAVE(OK);
        }
        scanned = generation;
        if (now_us() >= end) LEAVE(TIMEOUT);
        pthread_mutex_unlock(&L);
        wait_change(s->fd, end);
        pthread_mutex_lock(&L);
    }
}
API nvmlEventSetWait(nvmlEventSet_t s, nvmlEventData_t *e, unsigned ms) { ENTER(NULL); return wait_event(s, e, ms, 1); }
API nvmlEventSetWait_v2(nvmlEventSet_t s, nvmlEventData_t *e, unsigned ms) { ENTER(NULL); return wait_event(s, e, ms, 2); }

__attribute__((visibility("default"))) const char *nvmlErrorString(nvmlReturn_t rc)
{
    static const char *const t[] = { "The operation was successful", "Uninitialized", "Invalid Argument", "Not Supported",
        "Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power",
        "Driver Not Loaded", "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset", "GPU access blocked by the operating system",
        "Driver/library version mismatch", "In use by another client", "Insufficient Memory", "No data",
        "The requested vgpu operation is not available on target device", "Insufficient Resources", "Frequency not supported",
        "Argument version mismatch" };
    return (unsigned)rc < sizeof t / sizeof *t ? t[rc] : "Unknown Error";
}
