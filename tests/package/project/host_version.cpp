// Links the installed host library.
#include <cstdio>

#include "backplane/backplane.h"

int main() { return std::printf("%s\n", backplane_version()) > 0 ? 0 : 1; }
