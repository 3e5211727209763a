/* A libcuda.so whose synchronisations return an error when they are told to; such an error stays, as one of a kernel does. */
#include <time.h>

static int error;

void stub_fail(int code) {
    error = code;
}

int cuStreamSynchronize(void *stream) {
    struct timespec time = {0, 2000000};
    (void)stream;
    nanosleep(&time, 0);
    return error;
}
