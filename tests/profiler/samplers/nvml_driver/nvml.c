/* A stand-in for NVIDIA's management library: the functions of libnvidia-ml.so.1 that the sampler calls, answered from a script.

   The script is the text file that STAND_IN_NVML names; README.md beside this file describes it. It is read when the library is
   initialized and not already in use. Every value is a closed formula of the time since zero, so whoever knows the script knows what a
   perfect measurement would have found. Threads may ask at the same time; initialize and shut down from one of them. */

#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    FUNCTION_NOT_FOUND = 13,
    GPU_IS_LOST = 15,
    RESET_REQUIRED = 16,
    NO_DATA = 21,
    NOT_READY = 27,
    UNKNOWN = 999
};

static const struct { int code; const char *name; const char *words; } ERRORS[] = {
    {SUCCESS, "SUCCESS", "The operation was successful"},
    {UNINITIALIZED, "UNINITIALIZED", "Uninitialized"},
    {INVALID_ARGUMENT, "INVALID_ARGUMENT", "Invalid Argument"},
    {NOT_SUPPORTED, "NOT_SUPPORTED", "Not Supported"},
    {NO_PERMISSION, "NO_PERMISSION", "Insufficient Permissions"},
    {NOT_FOUND, "NOT_FOUND", "Not Found"},
    {INSUFFICIENT_SIZE, "INSUFFICIENT_SIZE", "Insufficient Size"},
    {DRIVER_NOT_LOADED, "DRIVER_NOT_LOADED", "Driver Not Loaded"},
    {TIMEOUT, "TIMEOUT", "Timeout"},
    {FUNCTION_NOT_FOUND, "FUNCTION_NOT_FOUND", "Function Not Found"},
    {GPU_IS_LOST, "GPU_IS_LOST", "GPU is lost"},
    {RESET_REQUIRED, "RESET_REQUIRED", "GPU requires reset"},
    {NO_DATA, "NO_DATA", "No data"},
    {NOT_READY, "NOT_READY", "Not ready"},
    {UNKNOWN, "UNKNOWN", "Unknown Error"},
};

/* --- what can be scripted ------------------------------------------------------------------------------------------------------- */

#define ENTRIES(array) (sizeof(array) / sizeof((array)[0]))

enum { MAX_GPUS = 16, MAX_SLICES = 8, MAX_TERMS = 8, MAX_RULES = 32, MAX_PROCESSES = 32, MAX_STEPS = 8, TEXT = 96 };

enum Signal {
    POWER, LIMIT, UTILIZATION, MEMORY_UTILIZATION, MEMORY_USED, TEMPERATURE, MEMORY_TEMPERATURE, SM_CLOCK, MEMORY_CLOCK, THROTTLE,
    PCIE_TX, PCIE_RX, NVLINK_TX, NVLINK_RX, ECC_CORRECTED, ECC_UNCORRECTED, SIGNALS
};

static const char *SIGNAL_NAMES[SIGNALS] = {
    "power", "limit", "utilization", "memory_utilization", "memory_used", "temperature", "memory_temperature", "sm_clock",
    "memory_clock", "throttle", "pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx", "ecc_corrected", "ecc_uncorrected",
};

/* What can be read: every signal by its own name, and of the power also its integral, its average and its moment. */
enum Reading { ENERGY = SIGNALS, POWER_AVERAGE, POWER_INSTANT, READINGS };

enum Kind { CONSTANT, SQUARE, RAMP, BURST };

struct term { enum Kind kind; double first, second, third, fourth, fifth; };
struct signal { int terms; struct term term[MAX_TERMS]; };
struct behavior {
    double update_s, phase_s, window_s, quantum, start, wrap, stall_from_s, stall_to_s;
    int steps;
    double step_at_s[MAX_STEPS], step_by[MAX_STEPS];
};
struct rule { char function[TEXT]; int code; double from_s, to_s; };
struct delay { char function[TEXT]; double seconds; };
struct process { unsigned pid; unsigned long long bytes; unsigned instance; double from_s, to_s; };

struct device {
    struct device *parent; /* of a slice; NULL of a GPU */
    int index;
    unsigned instance;
    char name[TEXT], uuid[TEXT];
    unsigned long long memory_total, memory_used;
    /* of a GPU only */
    int major, minor, links;
    double lost_at_s;
    int lost_code;
    char lost_file[TEXT * 4];
    struct signal signals[SIGNALS];
    struct behavior behaviors[READINGS];
    int rules, delays, processes, slices;
    struct rule rule[MAX_RULES];
    struct delay delay[MAX_RULES];
    struct process process[MAX_PROCESSES];
    struct device *slice[MAX_SLICES];
};

typedef struct device *handle;

static struct device gpus[MAX_GPUS], slices[MAX_GPUS * MAX_SLICES];
static int gpu_number, slice_number;
static _Atomic int users;
static double zero_s;
static char driver[TEXT] = "550.54.15", journal[4096];
static struct rule init_rule;

/* --- time and signals ----------------------------------------------------------------------------------------------------------- */

static double epoch_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static double limited(double value, double least, double most) {
    return value < least ? least : value > most ? most : value;
}

static double term_value(const struct term *term, double at) {
    double position;
    switch (term->kind) {
    case CONSTANT:
        return term->first;
    case SQUARE: /* low, high, period, duty, phase: high first */
        position = (at - term->fifth) / term->third;
        return position - floor(position) < term->fourth ? term->second : term->first;
    case RAMP: /* before, after, start, seconds */
        if (term->fourth <= 0) return at < term->third ? term->first : term->second;
        return term->first + (term->second - term->first) * limited((at - term->third) / term->fourth, 0, 1);
    default: /* burst: height, start, seconds, every */
        if (at < term->second) return 0;
        at -= term->second;
        if (term->fourth > 0) at -= floor(at / term->fourth) * term->fourth;
        return at < term->third ? term->first : 0;
    }
}

/* The integral of a term from some fixed time to ``at``. */
static double term_integral(const struct term *term, double at) {
    double position, whole, done;
    switch (term->kind) {
    case CONSTANT:
        return term->first * at;
    case SQUARE:
        position = (at - term->fifth) / term->third;
        whole = floor(position);
        done = whole * term->fourth + fmin(position - whole, term->fourth);
        return term->third * (term->first * position + (term->second - term->first) * done);
    case RAMP:
        if (at <= term->third) return term->first * (at - term->third);
        done = fmin(at - term->third, term->fourth);
        return (term->first * done + (term->fourth > 0 ? (term->second - term->first) * done * done / (2 * term->fourth) : 0)
                + term->second * (at - term->third - done));
    default:
        if (at < term->second) return 0;
        at -= term->second;
        whole = term->fourth > 0 ? floor(at / term->fourth) : 0;
        return term->first * (whole * term->third + fmin(at - whole * term->fourth, term->third));
    }
}

static double value_at(const struct signal *signal, double at) {
    double sum = 0;
    for (int i = 0; i < signal->terms; i++) sum += term_value(&signal->term[i], at);
    return sum;
}

static double integral_to(const struct signal *signal, double at) {
    double sum = 0;
    for (int i = 0; i < signal->terms; i++) sum += term_integral(&signal->term[i], at);
    return sum;
}

static enum Signal signal_of(int reading) {
    return reading < SIGNALS ? (enum Signal)reading : POWER;
}

static int is_count(int reading) {
    return reading == ENERGY || reading == NVLINK_TX || reading == NVLINK_RX;
}

/* What the GPU shows now, in the script's units. */
static double shown(const struct device *gpu, int reading) {
    const struct signal *signal = &gpu->signals[signal_of(reading)];
    const struct behavior *how = &gpu->behaviors[reading];
    double at = epoch_s() - zero_s, value;
    if (how->update_s > 0) at = floor((at - how->phase_s) / how->update_s) * how->update_s + how->phase_s;
    if (at >= how->stall_from_s && at < how->stall_to_s) at = how->stall_from_s;
    if (is_count(reading))
        value = integral_to(signal, at) - integral_to(signal, 0);
    else if (how->window_s > 0)
        value = (integral_to(signal, at) - integral_to(signal, at - how->window_s)) / how->window_s;
    else
        value = value_at(signal, at);
    value += how->start;
    for (int i = 0; i < how->steps; i++)
        if (at >= how->step_at_s[i]) value += how->step_by[i];
    if (value < 0) value = 0;
    if (how->wrap > 0) value = fmod(value, how->wrap);
    if (how->quantum > 0) value = floor(value / how->quantum + 1e-9) * how->quantum;
    return value;
}

static int has(const struct device *gpu, int reading) {
    return gpu->signals[signal_of(reading)].terms > 0;
}

/* --- the script ----------------------------------------------------------------------------------------------------------------- */

static int index_of(const char *name, const char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (!strcmp(name, names[i])) return i;
    return -1;
}

static int reading_named(const char *name) {
    if (!strcmp(name, "energy")) return ENERGY;
    if (!strcmp(name, "power_average")) return POWER_AVERAGE;
    if (!strcmp(name, "power_instant")) return POWER_INSTANT;
    return index_of(name, SIGNAL_NAMES, SIGNALS);
}

static int code_named(const char *name) {
    for (size_t i = 0; i < ENTRIES(ERRORS); i++)
        if (!strcmp(name, ERRORS[i].name)) return ERRORS[i].code;
    return -1;
}

static void new_gpu(struct device *gpu, int index) {
    memset(gpu, 0, sizeof *gpu);
    gpu->index = index;
    gpu->major = 9;
    gpu->lost_at_s = INFINITY;
    snprintf(gpu->name, TEXT, "Stand-in GPU");
    snprintf(gpu->uuid, TEXT, "GPU-00000000-0000-0000-0000-%012d", index);
    gpu->memory_total = 80ull << 30;
    for (int i = 0; i < READINGS; i++) gpu->behaviors[i].stall_from_s = gpu->behaviors[i].stall_to_s = INFINITY;
}

/* As NVIDIA documents it: with compute capability 8.6 and above, the usual power is the average over a second. */
static void finish_gpu(struct device *gpu) {
    if (gpu->major * 10 + gpu->minor <= 80) return;
    if (!gpu->behaviors[POWER].window_s) gpu->behaviors[POWER].window_s = 1;
    if (!gpu->behaviors[POWER_AVERAGE].window_s) gpu->behaviors[POWER_AVERAGE].window_s = 1;
}

static int add_term(struct signal *signal, const char *kind, const double *number, int count) {
    static const char *const KINDS[] = {"constant", "square", "ramp", "burst"};
    static const int LEAST[] = {1, 3, 4, 3}, MOST[] = {1, 5, 4, 4};
    int found = index_of(kind, KINDS, ENTRIES(KINDS));
    if (found < 0 || signal->terms == MAX_TERMS || count < LEAST[found] || count > MOST[found]) return 0;
    struct term term = {(enum Kind)found, number[0], number[1], number[2], number[3], number[4]};
    if (found == SQUARE && count < 4) term.fourth = 0.5;
    if ((found == SQUARE && term.third <= 0) || (found == BURST && term.fourth > 0 && term.fourth < term.third)) return 0;
    signal->term[signal->terms++] = term;
    return 1;
}

static int set_behaviour(struct behavior *how, const char *key, const double *number, int count) {
    if (!strcmp(key, "update") && (count == 1 || count == 2)) {
        how->update_s = number[0];
        how->phase_s = number[1];
    } else if (!strcmp(key, "window") && count == 1) {
        how->window_s = number[0];
    } else if (!strcmp(key, "quantum") && count == 1) {
        how->quantum = number[0];
    } else if (!strcmp(key, "start") && count == 1) {
        how->start = number[0];
    } else if (!strcmp(key, "wrap") && count == 1) {
        how->wrap = number[0];
    } else if (!strcmp(key, "stall") && (count == 1 || count == 2)) {
        how->stall_from_s = number[0];
        how->stall_to_s = count == 2 ? number[1] : INFINITY;
    } else if (!strcmp(key, "step") && count == 2 && how->steps < MAX_STEPS) {
        how->step_at_s[how->steps] = number[0];
        how->step_by[how->steps++] = number[1];
    } else {
        return 0;
    }
    return 1;
}

static int set_rule(struct rule *rule, char **words, int count) {
    rule->code = code_named(words[2]);
    snprintf(rule->function, TEXT, "%s", words[1]);
    rule->from_s = count > 3 ? atof(words[3]) : -INFINITY;
    rule->to_s = count > 4 ? atof(words[4]) : INFINITY;
    return rule->code >= 0;
}

/* Take one line; 0 when it says nothing that we know. */
static int parse(char **words, int count) {
    const char *key = words[0];
    struct device *gpu = gpu_number ? &gpus[gpu_number - 1] : NULL;
    double number[6] = {0};
    if (!strcmp(key, "gpu") && count == 1) {
        if (gpu_number == MAX_GPUS) return 0;
        new_gpu(&gpus[gpu_number], gpu_number);
        gpu_number++;
        return 1;
    }
    if (!gpu) {
        if (!strcmp(key, "epoch") && count == 2) zero_s = atof(words[1]);
        else if (!strcmp(key, "driver") && count == 2) snprintf(driver, TEXT, "%s", words[1]);
        else if (!strcmp(key, "journal") && count == 2) snprintf(journal, sizeof journal, "%s", words[1]);
        else if (!strcmp(key, "error") && count == 3) return set_rule(&init_rule, words, count);
        else return 0;
        return 1;
    }
    if (!strcmp(key, "uuid") && count == 2) return snprintf(gpu->uuid, TEXT, "%s", words[1]) > 0;
    if (!strcmp(key, "capability") && count == 2) return sscanf(words[1], "%d.%d", &gpu->major, &gpu->minor) == 2;
    if (!strcmp(key, "memory_total") && count == 2) return (gpu->memory_total = (unsigned long long)atof(words[1])) > 0;
    if (!strcmp(key, "links") && count == 2) return (gpu->links = atoi(words[1])) > 0;
    if (!strcmp(key, "lost") && (count == 2 || count == 3)) {
        gpu->lost_at_s = atof(words[1]);
        gpu->lost_code = count == 3 ? code_named(words[2]) : GPU_IS_LOST;
        return gpu->lost_code > 0;
    }
    if (!strcmp(key, "lost_by") && (count == 2 || count == 3)) {
        gpu->lost_code = count == 3 ? code_named(words[2]) : GPU_IS_LOST;
        return gpu->lost_code > 0 && snprintf(gpu->lost_file, sizeof gpu->lost_file, "%s", words[1]) < (int)sizeof gpu->lost_file;
    }
    if (!strcmp(key, "error") && count >= 3 && count <= 5) {
        return gpu->rules < MAX_RULES && set_rule(&gpu->rule[gpu->rules++], words, count);
    }
    if (!strcmp(key, "latency") && count == 3 && gpu->delays < MAX_RULES) {
        struct delay *delay = &gpu->delay[gpu->delays++];
        snprintf(delay->function, TEXT, "%s", words[1]);
        delay->seconds = atof(words[2]);
        return 1;
    }
    if (!strcmp(key, "process") && count >= 3 && count <= 6 && gpu->processes < MAX_PROCESSES) {
        struct process *process = &gpu->process[gpu->processes++];
        process->pid = (unsigned)strtoul(words[1], NULL, 10);
        process->bytes = !strcmp(words[2], "unknown") ? ~0ull : (unsigned long long)atof(words[2]);
        process->instance = count > 3 ? (unsigned)atoi(words[3]) : 0xFFFFFFFFu;
        process->from_s = count > 4 ? atof(words[4]) : -INFINITY;
        process->to_s = count > 5 ? atof(words[5]) : INFINITY;
        return process->pid > 0;
    }
    if (!strcmp(key, "slice") && count == 5 && gpu->slices < MAX_SLICES) {
        struct device *slice = &slices[slice_number++];
        memset(slice, 0, sizeof *slice);
        slice->parent = gpu;
        slice->index = gpu->slices;
        slice->instance = (unsigned)atoi(words[2]);
        snprintf(slice->uuid, TEXT, "%s", words[1]);
        slice->memory_total = (unsigned long long)atof(words[3]);
        slice->memory_used = (unsigned long long)atof(words[4]);
        gpu->slice[gpu->slices++] = slice;
        return 1;
    }
    if (count < 3 || count > 8) return 0;
    int numbers = count - 2;
    for (int i = 0; i < numbers; i++) {
        char *end;
        number[i] = strtod(words[i + 2], &end);
        if (*end) return 0;
    }
    int signal = index_of(key, SIGNAL_NAMES, SIGNALS);
    if (signal >= 0) return add_term(&gpu->signals[signal], words[1], number, numbers);
    int reading = reading_named(words[1]);
    return reading >= 0 && set_behaviour(&gpu->behaviors[reading], key, number, numbers);
}

static int read_script(void) {
    const char *path = getenv("STAND_IN_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[4096];
    int lines = 0, right = file != NULL;
    gpu_number = slice_number = 0;
    journal[0] = init_rule.function[0] = 0;
    zero_s = epoch_s();
    if (!file) fprintf(stderr, "stand-in NVML: cannot read the script that STAND_IN_NVML names (%s)\n", path ? path : "unset");
    while (file && fgets(line, sizeof line, file)) {
        char *words[10], *rest = line, *word;
        int count = 0;
        lines++;
        line[strcspn(line, "#\n")] = 0;
        if (!strncmp(line, "name ", 5) && gpu_number) {
            snprintf(gpus[gpu_number - 1].name, TEXT, "%.*s", TEXT - 1, line + 5);
            continue;
        }
        while (count < 10 && (word = strsep(&rest, " \t")))
            if (*word) words[count++] = word;
        if (count && !parse(words, count)) {
            fprintf(stderr, "stand-in NVML: line %d of %s is not understood: it begins with %s\n", lines, path, words[0]);
            right = 0;
        }
    }
    if (file) fclose(file);
    for (int i = 0; i < gpu_number; i++) finish_gpu(&gpus[i]);
    return right;
}

/* --- the gate that every call passes ---------------------------------------------------------------------------------------------- */

static int known(handle device) {
    return (device >= gpus && device < gpus + gpu_number) || (device >= slices && device < slices + slice_number);
}

static struct device *gpu_of(handle device) {
    return device->parent ? device->parent : device;
}

static int ruled(const struct device *gpu, const char *function) {
    double at = epoch_s() - zero_s;
    if (at >= gpu->lost_at_s || (gpu->lost_file[0] && !access(gpu->lost_file, F_OK))) return gpu->lost_code;
    for (int i = 0; i < gpu->rules; i++)
        if (!strcmp(gpu->rule[i].function, function) && at >= gpu->rule[i].from_s && at < gpu->rule[i].to_s) return gpu->rule[i].code;
    return SUCCESS;
}

/* Note the call in the journal: its time, what was asked, and of which GPU. */
static void note(const char *function, const struct device *gpu) {
    if (!journal[0]) return;
    FILE *file = fopen(journal, "a");
    if (!file) return;
    fprintf(file, "%.6f %s %d\n", epoch_s() - zero_s, function, gpu ? gpu->index : -1);
    fclose(file);
}

static int enter(const char *function, handle device) {
    if (!users) return UNINITIALIZED;
    if (!known(device)) return INVALID_ARGUMENT;
    struct device *gpu = gpu_of(device);
    note(function, gpu);
    for (int i = 0; i < gpu->delays; i++)
        if (!strcmp(gpu->delay[i].function, function)) usleep((useconds_t)(gpu->delay[i].seconds * 1e6));
    return ruled(gpu, function);
}

#define ENTER(device)                                   \
    do {                                                \
        int refused = enter(__func__, device);          \
        if (refused) return refused;                    \
    } while (0)

/* Of a slice, and of what the script says nothing about, there is no such figure. */
#define READ(device, reading, target, scale)                                           \
    do {                                                                               \
        ENTER(device);                                                                 \
        if ((device)->parent || !has(device, reading)) return NOT_SUPPORTED;           \
        *(target) = (__typeof__(*(target)))(shown(device, reading) * (scale) + 1e-6);  \
        return SUCCESS;                                                                \
    } while (0)

/* --- NVML --------------------------------------------------------------------------------------------------------------------------- */

EXPORT const char *nvmlErrorString(int code) {
    for (size_t i = 0; i < ENTRIES(ERRORS); i++)
        if (ERRORS[i].code == code) return ERRORS[i].words;
    return "Unknown Error";
}

EXPORT int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!users && !read_script()) return INVALID_ARGUMENT;
    note(__func__, NULL);
    if (!strcmp(init_rule.function, "nvmlInit")) return init_rule.code;
    users++;
    return SUCCESS;
}

EXPORT int nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

EXPORT int nvmlShutdown(void) {
    if (!users) return UNINITIALIZED;
    note(__func__, NULL);
    users--;
    return SUCCESS;
}

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    if (!users) return UNINITIALIZED;
    return snprintf(version, length, "%s", driver) < (int)length ? SUCCESS : INSUFFICIENT_SIZE;
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    if (!users) return UNINITIALIZED;
    *version = 12040;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    if (!users) return UNINITIALIZED;
    *count = (unsigned)gpu_number;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *device) {
    if (!users) return UNINITIALIZED;
    if (index >= (unsigned)gpu_number) return INVALID_ARGUMENT;
    *device = &gpus[index];
    return enter(__func__, *device);
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, handle *device) {
    if (!users) return UNINITIALIZED;
    for (int i = 0; i < gpu_number; i++) {
        if (!strcmp(gpus[i].uuid, uuid)) return *device = &gpus[i], enter(__func__, &gpus[i]);
        int refused = ruled(&gpus[i], __func__);
        if (refused) return refused;
    }
    for (int i = 0; i < slice_number; i++)
        if (!strcmp(slices[i].uuid, uuid)) return *device = &slices[i], enter(__func__, &slices[i]);
    return NOT_FOUND;
}

EXPORT int nvmlDeviceGetName(handle device, char *name, unsigned length) {
    ENTER(device);
    return snprintf(name, length, "%s", gpu_of(device)->name) < (int)length ? SUCCESS : INSUFFICIENT_SIZE;
}

EXPORT int nvmlDeviceGetUUID(handle device, char *uuid, unsigned length) {
    ENTER(device);
    return snprintf(uuid, length, "%s", device->uuid) < (int)length ? SUCCESS : INSUFFICIENT_SIZE;
}

EXPORT int nvmlDeviceGetIndex(handle device, unsigned *index) {
    ENTER(device);
    *index = (unsigned)device->index;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetCudaComputeCapability(handle device, int *major, int *minor) {
    ENTER(device);
    *major = gpu_of(device)->major;
    *minor = gpu_of(device)->minor;
    return SUCCESS;
}

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

static unsigned long long used_bytes(handle device) {
    return device->parent ? device->memory_used : (unsigned long long)shown(device, MEMORY_USED);
}

EXPORT int nvmlDeviceGetMemoryInfo(handle device, struct memory *memory) {
    ENTER(device);
    if (!device->parent && !has(device, MEMORY_USED)) return NOT_SUPPORTED;
    *memory = (struct memory){device->memory_total, device->memory_total - used_bytes(device), used_bytes(device)};
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(handle device, struct memory_v2 *memory) {
    ENTER(device);
    if (!device->parent && !has(device, MEMORY_USED)) return NOT_SUPPORTED;
    *memory = (struct memory_v2){memory->version, device->memory_total, 0, device->memory_total - used_bytes(device), used_bytes(device)};
    return SUCCESS;
}

EXPORT int nvmlDeviceGetUtilizationRates(handle device, unsigned rates[2]) {
    ENTER(device);
    /* NVML does not tell it of a GPU that is sliced either. */
    if (device->parent || device->slices || !has(device, UTILIZATION)) return NOT_SUPPORTED;
    rates[0] = (unsigned)(shown(device, UTILIZATION) * 100 + 1e-6);
    rates[1] = has(device, MEMORY_UTILIZATION) ? (unsigned)(shown(device, MEMORY_UTILIZATION) * 100 + 1e-6) : 0;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetPowerUsage(handle device, unsigned *milliwatts) {
    READ(device, POWER, milliwatts, 1e3);
}

EXPORT int nvmlDeviceGetEnforcedPowerLimit(handle device, unsigned *milliwatts) {
    READ(device, LIMIT, milliwatts, 1e3);
}

EXPORT int nvmlDeviceGetTotalEnergyConsumption(handle device, unsigned long long *millijoules) {
    READ(device, ENERGY, millijoules, 1e3);
}

EXPORT int nvmlDeviceGetTemperature(handle device, unsigned sensor, unsigned *celsius) {
    if (sensor) return INVALID_ARGUMENT;
    READ(device, TEMPERATURE, celsius, 1);
}

EXPORT int nvmlDeviceGetClockInfo(handle device, unsigned clock, unsigned *megahertz) {
    if (clock != 1 && clock != 2) return INVALID_ARGUMENT;
    READ(device, clock == 1 ? SM_CLOCK : MEMORY_CLOCK, megahertz, 1e-6);
}

EXPORT int nvmlDeviceGetCurrentClocksEventReasons(handle device, unsigned long long *bits) {
    READ(device, THROTTLE, bits, 1);
}

EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(handle device, unsigned long long *bits) {
    READ(device, THROTTLE, bits, 1);
}

EXPORT int nvmlDeviceGetPcieThroughput(handle device, unsigned counter, unsigned *kilobytes_per_s) {
    if (counter > 1) return INVALID_ARGUMENT;
    READ(device, counter ? PCIE_RX : PCIE_TX, kilobytes_per_s, 1e-3);
}

EXPORT int nvmlDeviceGetTotalEccErrors(handle device, unsigned type, unsigned counter, unsigned long long *count) {
    if (type > 1 || counter) return INVALID_ARGUMENT;
    READ(device, type ? ECC_UNCORRECTED : ECC_CORRECTED, count, 1);
}

/* --- fields */

union value { double d; unsigned ui; unsigned long ul; unsigned long long ull; long long sll; int si; };
struct field {
    uint32_t field, scope;
    int64_t timestamp_us, latency_us;
    uint32_t type, code;
    union value value;
};

static int field_value(handle device, struct field *field) {
    char name[TEXT];
    struct device *gpu = gpu_of(device);
    int reading, wide = 0;
    double scale = 1;
    snprintf(name, TEXT, "field_%u", field->field);
    note(name, gpu);
    int refused = ruled(gpu, name);
    if (refused) return refused;
    switch (field->field) {
    case 82: reading = MEMORY_TEMPERATURE; break;
    case 83: reading = ENERGY, scale = 1e3, wide = 1; break;
    case 138: reading = NVLINK_TX, scale = 1.0 / 1024, wide = 1; break;
    case 139: reading = NVLINK_RX, scale = 1.0 / 1024, wide = 1; break;
    case 185: reading = POWER_AVERAGE, scale = 1e3; break;
    case 186: reading = POWER_INSTANT, scale = 1e3; break;
    default: return NOT_SUPPORTED;
    }
    if (device->parent || !has(device, reading)) return NOT_SUPPORTED;
    if (reading == POWER_AVERAGE && !gpu->behaviors[POWER_AVERAGE].window_s) return NOT_SUPPORTED;
    if (reading == NVLINK_TX || reading == NVLINK_RX) {
        /* One link by its number, all of them by the largest number there is. */
        if (field->scope != 0xFFFFFFFFu) {
            if (field->scope >= (unsigned)gpu->links) return INVALID_ARGUMENT;
            scale /= gpu->links;
        }
    } else if (field->scope) {
        return INVALID_ARGUMENT;
    }
    double value = shown(device, reading) * scale + 1e-6;
    field->type = wide ? 3 : 1;
    if (wide) field->value.ull = (unsigned long long)value;
    else field->value.ui = (unsigned)value;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetFieldValues(handle device, int count, struct field *fields) {
    ENTER(device);
    for (int i = 0; i < count; i++) {
        fields[i].timestamp_us = (int64_t)(epoch_s() * 1e6);
        fields[i].latency_us = 0;
        fields[i].code = (uint32_t)field_value(device, &fields[i]);
    }
    return SUCCESS;
}

/* --- processes */

struct process_info { unsigned pid; unsigned long long bytes; unsigned instance, compute_instance; };

static int processes(handle device, unsigned *count, struct process_info *infos) {
    struct device *gpu = gpu_of(device);
    double at = epoch_s() - zero_s;
    unsigned room = *count, found = 0;
    for (int i = 0; i < gpu->processes; i++) {
        struct process *process = &gpu->process[i];
        if (at < process->from_s || at >= process->to_s || (device->parent && process->instance != device->instance)) continue;
        if (found < room && infos) {
            unsigned compute_instance = process->instance == 0xFFFFFFFFu ? 0xFFFFFFFFu : 0;
            infos[found] = (struct process_info){process->pid, process->bytes, process->instance, compute_instance};
        }
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(handle device, unsigned *count, struct process_info *infos) {
    ENTER(device);
    return processes(device, count, infos);
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(handle device, unsigned *count, struct process_info *infos) {
    ENTER(device);
    return processes(device, count, infos);
}

/* --- slices (MIG) */

EXPORT int nvmlDeviceGetMigMode(handle device, unsigned *current, unsigned *pending) {
    ENTER(device);
    if (device->parent || device->major < 8) return NOT_SUPPORTED;
    *current = *pending = device->slices > 0;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(handle device, unsigned *count) {
    ENTER(device);
    *count = !device->parent && device->major >= 8 ? 7 : 0;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(handle device, unsigned index, handle *slice) {
    ENTER(device);
    if (device->parent) return INVALID_ARGUMENT;
    if (index >= (unsigned)device->slices) return NOT_FOUND;
    *slice = device->slice[index];
    return SUCCESS;
}

EXPORT int nvmlDeviceIsMigDeviceHandle(handle device, unsigned *is_slice) {
    ENTER(device);
    *is_slice = device->parent != NULL;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle slice, handle *device) {
    ENTER(slice);
    if (!slice->parent) return INVALID_ARGUMENT;
    *device = slice->parent;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetGpuInstanceId(handle device, unsigned *instance) {
    ENTER(device);
    if (!device->parent) return NOT_SUPPORTED;
    *instance = device->instance;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetComputeInstanceId(handle device, unsigned *instance) {
    ENTER(device);
    if (!device->parent) return NOT_SUPPORTED;
    *instance = 0;
    return SUCCESS;
}
