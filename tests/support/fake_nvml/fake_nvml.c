/* Fake libnvidia-ml.so.1: answers the public NVML C API from a small text file.
 *
 *   FAKE_NVML_STATE   the state file: `key=value` lines, `#` comments; re-read whenever it
 *                     changes (replace it by rename, or rewrite it in place)
 *   FAKE_NVML_LOG     optional: every call is appended there as `function[ device]`
 *
 * Keys: system keys (count, driver, cuda, ...); `N.key` for GPU N, `*.key` for all GPUs;
 * `N.mig.M.key` for MIG device M of GPU N. A key that is absent means NVML_ERROR_NOT_SUPPORTED;
 * a value `!15` means "fail with 15"; `na` is NVML_VALUE_NOT_AVAILABLE; K/M/G are binary.
 * Faults: fault.FN=RC, fault.N.FN=RC, fault.*.FN=RC, fault.N.*=RC (FN without _vN matches all
 * versions); delay.FN=MICROSECONDS likewise. See README.md for the full list of keys. */
#define _GNU_SOURCE
#include <libgen.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef HAVE_NVML_H
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
typedef unsigned long long u64_t;
#else
#include "nvml_min.h"
#endif
/* the same sizes must hold for nvml_min.h and for NVIDIA's nvml.h (make check-abi) */
#define SIZE(T, n) _Static_assert(sizeof(T) == (n), #T)
SIZE(nvmlMemory_t, 24); SIZE(nvmlMemory_v2_t, 40); SIZE(nvmlBAR1Memory_t, 24); SIZE(nvmlUtilization_t, 8); SIZE(nvmlPciInfo_t, 68);
SIZE(nvmlProcessInfo_v1_t, 16); SIZE(nvmlProcessInfo_v2_t, 24); SIZE(nvmlProcessInfo_t, 24); SIZE(nvmlProcessDetail_v1_t, 32);
SIZE(nvmlProcessDetailList_t, 24); SIZE(nvmlProcessUtilizationSample_t, 32); SIZE(nvmlProcessUtilizationInfo_v1_t, 40);
SIZE(nvmlProcessesUtilizationInfo_t, 24); SIZE(nvmlFieldValue_t, 40); SIZE(nvmlSample_t, 16); SIZE(nvmlViolationTime_t, 16);
SIZE(nvmlEventData_t, 32); SIZE(nvmlDeviceAttributes_t, 40); SIZE(nvmlTemperature_t, 12);
#define API __attribute__((visibility("default"))) nvmlReturn_t
enum { OK = 0, UNINIT = 1, BADARG = 2, NOTSUP = 3, NOTFOUND = 6, TOOSMALL = 7, TIMEOUT = 10, VERSION = 25 };
enum { MAXGPU = 16, MAXMIG = 8, MAXPROC = 256 };
#define NA (~0ull)

/* ---- state ------------------------------------------------------------------------- */
struct kv { const char *k, *v; };
struct state { struct kv *kv; size_t n; char *text; struct stat st; };
static struct state S;
static pthread_mutex_t L = PTHREAD_MUTEX_INITIALIZER;
static int inits;
static unsigned generation;                               /* counts the versions of the state file that were read */

static int by_key(const void *a, const void *b) { return strcmp(((struct kv *)a)->k, ((struct kv *)b)->k); }

static void reload(void)                                  /* holding L */
{
    const char *path = getenv("FAKE_NVML_STATE");
    struct stat st;
    if (!path || stat(path, &st))
        return;
    if (S.text && st.st_ino == S.st.st_ino && st.st_size == S.st.st_size &&
        !memcmp(&st.st_mtim, &S.st.st_mtim, sizeof st.st_mtim))
        return;
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    fstat(fileno(f), &st);                                /* the file may have been replaced since */
    char *text = calloc(1, st.st_size + 2);
    text[fread(text, 1, st.st_size, f)] = 0;
    fclose(f);
    free(S.kv); free(S.text);
    generation++;
    S = (struct state){ .text = text, .st = st };
    size_t cap = 0;
    for (char *save, *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char *eq = strchr(l, '=');
        if (*l == '#' || !eq)
            continue;
        *eq = 0;
        if (S.n == cap)
            S.kv = realloc(S.kv, (cap = cap ? 2 * cap : 512) * sizeof *S.kv);
        S.kv[S.n++] = (struct kv){ l, eq + 1 };
    }
    qsort(S.kv, S.n, sizeof *S.kv, by_key);
}

static const char *find(const char *key)                   /* holding L */
{
    struct kv want = { key, 0 }, *hit = S.n ? bsearch(&want, S.kv, S.n, sizeof want, by_key) : NULL;
    return hit ? hit->v : NULL;
}

/* ---- devices ------------------------------------------------------------------------ */
struct fk_dev { int gpu, mig; };                            /* mig: -1 for a whole GPU */
static struct fk_dev gpus[MAXGPU], migs[MAXGPU][MAXMIG];
#define DEV(d) ((struct fk_dev *)(d))

static int known(const void *d)
{
    return (d >= (void *)gpus && d < (void *)(gpus + MAXGPU)) || (d >= (void *)migs && d < (void *)(migs + MAXGPU));
}

static const char *get(const void *d, const char *key)      /* holding L; d NULL: system key */
{
    char buf[128];
    const char *v;
    if (!d)
        return find(key);
    if (DEV(d)->mig >= 0) {
        snprintf(buf, sizeof buf, "%d.mig.%d.%s", DEV(d)->gpu, DEV(d)->mig, key);
        return find(buf);
    }
    snprintf(buf, sizeof buf, "%d.%s", DEV(d)->gpu, key);
    if ((v = find(buf)))
        return v;
    snprintf(buf, sizeof buf, "*.%s", key);
    return find(buf);
}

static u64_t number(const char **p)
{
    if (!strncmp(*p, "na", 2)) { *p += 2; return NA; }
    char *e;
    u64_t v = strtoull(*p, &e, 0);
    if (*e == 'K' || *e == 'M' || *e == 'G')
        v <<= *e == 'K' ? 10 : *e == 'M' ? 20 : 30, e++;
    *p = e;
    return v;
}

static int rc_of(const char *v) { return !v ? NOTSUP : *v == '!' ? atoi(v + 1) : OK; }
static u64_t num_of(const char *v) { return number(&v); }

/* Every API function begins here: init check, log, injected delay, injected fault. Returns with
 * L held when it returns OK. `fn` is __func__; versions are tried with and without the suffix. */
static const char *rule(const char *kind, const char *fn, const void *d)
{
    char base[96], key[160];
    const char *v;
    snprintf(base, sizeof base, "%s", fn);
    size_t n = strlen(base);
    if (n > 3 && base[n - 3] == '_' && base[n - 2] == 'v') base[n - 3] = 0;
    for (int stem = 0; stem < 2; stem++) {
        const char *name = stem ? base : fn;
        if (stem && !strcmp(base, fn))
            break;
        if (d) {
            snprintf(key, sizeof key, "%s.%d.%s", kind, DEV(d)->gpu, name);
            if ((v = find(key))) return v;
            snprintf(key, sizeof key, "%s.*.%s", kind, name);
            if ((v = find(key))) return v;
        }
        snprintf(key, sizeof key, "%s.%s", kind, name);
        if ((v = find(key))) return v;
    }
    if (d) {
        snprintf(key, sizeof key, "%s.%d.*", kind, DEV(d)->gpu);
        if ((v = find(key))) return v;
    }
    return NULL;
}

static int enter(const char *fn, const void *d, int need_init)
{
    static int log_fd = -2;
    pthread_mutex_lock(&L);
    reload();
    if (log_fd == -2) {
        FILE *f = getenv("FAKE_NVML_LOG") ? fopen(getenv("FAKE_NVML_LOG"), "a") : NULL;
        log_fd = f ? fileno(f) : -1;
    }
    if (log_fd >= 0)
        d && known(d) ? dprintf(log_fd, "%s %d\n", fn, DEV(d)->gpu) : dprintf(log_fd, "%s\n", fn);
    int rc = need_init && !inits ? UNINIT : d && !known(d) ? BADARG : OK;
    if (rc == OK) {
        const char *v;
        useconds_t us = (v = rule("delay", fn, d)) ? num_of(v) : 0;
        if (us) {
            pthread_mutex_unlock(&L);
            usleep(us);
            pthread_mutex_lock(&L);
        }
        if ((v = rule("fault", fn, d)))
            rc = atoi(v);
    }
    if (rc != OK)
        pthread_mutex_unlock(&L);
    return rc;
}
#define ENTER(d)  do { int rc_ = enter(__func__, (d), 1); if (rc_) return rc_; } while (0)
#define LEAVE(rc) do { int r_ = (rc); pthread_mutex_unlock(&L); return r_; } while (0)
#define NEED(p)   do { if (!(p)) LEAVE(BADARG); } while (0)

static int get_u32(const void *d, const char *key, unsigned *out)
{
    const char *v = get(d, key);
    int rc = rc_of(v);
    if (!rc) *out = (unsigned)num_of(v);
    return rc;
}
static int get_u64(const void *d, const char *key, u64_t *out)
{
    const char *v = get(d, key);
    int rc = rc_of(v);
    if (!rc) *out = num_of(v);
    return rc;
}
static int get_str(const void *d, const char *key, char *out, unsigned len)
{
    const char *v = get(d, key);
    int rc = rc_of(v);
    if (rc) return rc;
    if (strlen(v) >= len) return TOOSMALL;
    strcpy(out, v);
    return OK;
}
static u64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000ull + t.tv_nsec / 1000;
}
static const char *keyf(char *buf, const char *fmt, unsigned a, unsigned b) { snprintf(buf, 64, fmt, a, b); return buf; }

#include "queries.h"
#include "health.h"
#include "processes.h"
#include "events.h"
