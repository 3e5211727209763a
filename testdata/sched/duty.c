/* A program whose scheduling is known: on CPU 0 two threads that only compute, one that sleeps for 5 ms at a time, and two
 * that hand a turn to each other. Prints, in CLOCK_MONOTONIC nanoseconds, when it began and ended, and its threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long end_ns;
static sem_t turn[2];

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void begin(const char *name) {
    pthread_setname_np(pthread_self(), name);
    printf("%s %ld\n", name, syscall(SYS_gettid));
}

static void *hog(void *name) {
    begin(name);
    while (now() < end_ns) {}
    return NULL;
}

static void *sleeper(void *name) {
    begin(name);
    struct timespec time = {0, 5000000};
    while (now() < end_ns) nanosleep(&time, NULL);
    return NULL;
}

static void *player(void *name) {
    begin(name);
    int self = ((const char *)name)[5] == 'b';
    for (int round = 0; round < 20; round++) {
        sem_wait(&turn[self]);
        sem_post(&turn[!self]);
    }
    return NULL;
}

int main(int argc, char **argv) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
    long start_ns = now();
    end_ns = start_ns + (argc > 1 ? atol(argv[1]) : 300) * 1000000L;
    sem_init(&turn[0], 0, 1);
    sem_init(&turn[1], 0, 0);
    void *(*what[])(void *) = {hog, hog, sleeper, player, player};
    char *names[] = {"hog_a", "hog_b", "sleeper", "turn_a", "turn_b"};
    pthread_t threads[5];
    for (int i = 0; i < 5; i++) pthread_create(&threads[i], NULL, what[i], names[i]);
    for (int i = 0; i < 5; i++) pthread_join(threads[i], NULL);
    printf("process %d from %ld to %ld\n", getpid(), start_ns, now());
    return 0;
}
