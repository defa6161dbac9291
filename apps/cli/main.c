#include <stdio.h>
#include "tern.h"
int main(void) {
    printf("tern %d.%d.%d\n", TERN_VERSION_MAJOR, TERN_VERSION_MINOR, TERN_VERSION_PATCH);
    return 0;
}
