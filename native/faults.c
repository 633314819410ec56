#include "faults.h"

#ifdef WSRT_FAULTS

#include <stdatomic.h>

enum { PLACES = 2, OWNER_DEATH_MS = 50, CONTROL_FD = 3, CONTROL_MS = 1000 };

struct place {
    atomic_long count, nth;
    atomic_int action, code, is_hit;
    char where[64];
};

/* Shared with the static programs that this process starts. */
struct faults {
    pid_t owner;
    struct place places[PLACES];
};

/* The only variables that the C core keeps between calls, and in this build alone: what is counted is the process. */
static struct faults *shared;
static int own_place = WSRT_FAULT_IN_HOST;
static char environment_entry[64];

/* Everything here is called in parentheses: these calls are not to fail. */
static struct faults *map(int fd)
{
    void *memory = (mmap)(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static int share(void)
{
    int fd = memfd_create("wsrt-faults", MFD_CLOEXEC);
    if (fd < 0 || (ftruncate)(fd, sizeof *shared) < 0 || (shared = map(fd)) == NULL)
        return -1;
    shared->owner = getpid();
    snprintf(environment_entry, sizeof environment_entry, "WSRT_FAULTS=/proc/%d/fd/%d", getpid(), fd);
    return 0;
}

/* Only the static program is started with that variable. */
static void __attribute__((constructor)) find_shared(void)
{
    const char *path = getenv("WSRT_FAULTS");
    int fd = path != NULL ? (open)(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    shared = map(fd);
    close(fd);
    own_place = WSRT_FAULT_IN_INIT;
}

int wsrt_faults_arm(int place, long nth, int action, int code)
{
    if (shared == NULL && share() < 0)
        return -1;
    struct place *armed = &shared->places[place];
    armed->nth = 0;
    armed->count = 0;
    armed->is_hit = 0;
    armed->where[0] = '\0';
    armed->action = action;
    armed->code = code;
    armed->nth = nth;
    return 0;
}

long wsrt_faults_count(int place)
{
    return shared->places[place].count;
}

int wsrt_faults_is_hit(int place)
{
    return shared->places[place].is_hit;
}

const char *wsrt_faults_where(int place)
{
    return shared->places[place].where;
}

const char *wsrt_faults_environment(void)
{
    return environment_entry;
}

/* Give the host, which has seen the hit, the time to die: in the static program, until its socket to the host
 * says that it did. */
static void await_death_of_owner(void)
{
    if (own_place == WSRT_FAULT_IN_INIT)
        (poll)(&(struct pollfd){.fd = CONTROL_FD}, 1, CONTROL_MS);
    else
        (nanosleep)(&(struct timespec){.tv_nsec = OWNER_DEATH_MS * 1000000L}, NULL);
}

/* In a child that has not become our program yet all memory is the host's, and its pid may be 1. */
static int end_process(int action)
{
    int is_owner = own_place == WSRT_FAULT_IN_HOST && getpid() == shared->owner;
    if (is_owner)
        kill(getpid(), SIGKILL);
    else if (action == WSRT_FAULT_DIE)
        _exit(137); /* pid 1 of a namespace cannot kill itself */
    else
        await_death_of_owner();
    return 0;
}

int wsrt_fault_is_due(int usual_code, const char *where)
{
    if (shared == NULL)
        return 0;
    struct place *armed = &shared->places[own_place];
    if (armed->nth == 0 || (armed->code == EINTR && !(usual_code & WSRT_FAULT_INTERRUPTIBLE)))
        return 0;
    if (atomic_fetch_add(&armed->count, 1) + 1 != armed->nth)
        return 0;
    const char *file = strstr(where, "native/");
    snprintf(armed->where, sizeof armed->where, "%s", file != NULL ? file : where);
    armed->is_hit = 1;
    if (armed->action != WSRT_FAULT_FAIL)
        return end_process(armed->action);
    errno = armed->code != 0 ? armed->code : usual_code & ~WSRT_FAULT_INTERRUPTIBLE;
    return 1;
}

#endif
