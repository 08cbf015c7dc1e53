#include "standard_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::apps {

void require_standard_output() {
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0)
      throw Error(fmt::format("standard {} is closed; open it, on /dev/null if need be",
                              stream == STDOUT_FILENO ? "output" : "error"));
}

void finish_standard_output() {
  errno = 0;
  std::cout.flush();  // CLI11 prints with it
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw Error(fmt::format("standard output cannot be written{}{}; what was printed is incomplete",
                            errno ? ": " : "", errno ? std::strerror(errno) : ""));
}

}  // namespace tandem::apps
