/* How many instructions does an emulated program have? A plugin for QEMU's user mode, which says it on standard error at the end.
 *
 * QEMU's header is no part of its packages: what is declared here is the first version of the plugins' interface. */
#include <inttypes.h>
#include <stdio.h>

typedef uint64_t Id;
struct qemu_plugin_tb;

void qemu_plugin_register_vcpu_tb_trans_cb(Id id, void (*translated)(Id id, struct qemu_plugin_tb *block));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
void qemu_plugin_register_vcpu_tb_exec_cb(
    struct qemu_plugin_tb *block, void (*executed)(unsigned cpu, void *data), int flags, void *data);
void qemu_plugin_register_atexit_cb(Id id, void (*ended)(Id id, void *data), void *data);

int qemu_plugin_version = 1;

/* Of all threads: programs that are counted have one, but for matrices of many megabytes while they are read. */
static uint64_t count;

static void executed(unsigned cpu, void *instructions) {
    (void)cpu;
    count += (uintptr_t)instructions;
}

static void translated(Id id, struct qemu_plugin_tb *block) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_cb(block, executed, 0, (void *)(uintptr_t)qemu_plugin_tb_n_insns(block));
}

static void ended(Id id, void *data) {
    (void)id;
    (void)data;
    fprintf(stderr, "%" PRIu64 " instructions\n", count);
}

int qemu_plugin_install(Id id, const void *info, int n_arguments, char **arguments) {
    (void)info;
    (void)n_arguments;
    (void)arguments;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
