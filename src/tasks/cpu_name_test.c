#include <string.h>
#include "tasks/cpu_name.h"
#include "tests/support/harness.h"

static bool is(const char *cpuinfo, const char *name) {
    char out[128];
    tern_cpu_name(cpuinfo, out, sizeof out);
    if (!strcmp(out, name)) return true;
    printf("    %s, not %s\n", out, name);
    return false;
}

// Seen to fail: with "model name" alone, which ARM's kernels do not write.
TEST(cpu_name_is_read) {
    CHECK(is("processor\t: 0\nmodel name\t: AMD EPYC 9B14\ncpu MHz : 1\n", "AMD EPYC 9B14"));
    const char *pi = "processor\t: 0\nBogoMIPS\t: 108.00\nFeatures\t: fp asimd\n"
                     "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x4\n"
                     "CPU part\t: 0xd0b\nCPU revision\t: 1\n\nprocessor\t: 1\n"
                     "CPU implementer\t: 0x41\nCPU part\t: 0xd0b\n\nModel\t\t: Raspberry Pi 5\n";
    CHECK(is(pi, "Cortex-A76"));
    CHECK(
        is("CPU implementer : 0x41\nCPU part : 0xd05\n\nCPU implementer : 0x41\nCPU part : 0xd44\n",
           "Cortex-A55 and Cortex-X1"));
    CHECK(is("CPU implementer\t: 0x99\nCPU part\t: 0x123", "ARM 0x99/0x123"));
    CHECK(is(
        "model name\t: ARMv7 Processor rev 4 (v7l)\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\n",
        "Cortex-A72"));
    CHECK(is("cpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"));
    CHECK(is("", "unknown") && is("model name", "unknown") && is("model name\t:\n", "unknown"));
    char small[12]; // more kinds than there is room for
    tern_cpu_name("CPU implementer: 0x41\nCPU part: 0xd05\nCPU part: 0xd44\n", small, sizeof small);
    CHECK(!strcmp(small, "Cortex-A55 "));
}
