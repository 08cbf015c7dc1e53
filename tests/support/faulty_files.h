#pragma once
#include <sys/types.h>

#include <cerrno>
#include <csignal>
#include <string>

#include <tandem/core/base/files.h>

namespace tandem::testing {
using namespace engine;

/// What happens to one system call of a save.
enum class Fault { none, killed, error, short_write };

/// Files whose call number `at`, counted from 0, meets a fault: the process is killed before the call or
/// halfway through a write; the call fails with `error`, once or from then on; or the call writes half of its
/// bytes.
class FaultyFiles final : public Files {
 public:
  FaultyFiles(Fault fault, int at, int error = 0, bool lasting = false)
      : fault_(fault), at_(at), error_(error), lasting_(lasting) {}
  int calls() const { return calls_; }

  int open(const std::string& path, int flags, mode_t mode) override {
    return fails() ? -1 : Files::open(path, flags, mode);
  }
  ssize_t write(int file, const void* data, std::size_t bytes) override {
    const bool now = calls_ == at_;
    if (now && fault_ == Fault::killed) Files::write(file, data, bytes / 2);
    if (now && fault_ == Fault::short_write && bytes > 1) bytes /= 2;
    return fails() ? -1 : Files::write(file, data, bytes);
  }
  int fsync(int) override { return fails() ? -1 : 0; }  // no test needs a real sync
  int close(int file) override {
    const int result = Files::close(file);  // a close that fails has closed the file
    return fails() ? -1 : result;
  }
  int mkdir(const std::string& path) override { return fails() ? -1 : Files::mkdir(path); }
  int rename(const std::string& from, const std::string& to) override {
    return fails() ? -1 : Files::rename(from, to);
  }
  int unlink(const std::string& path) override { return fails() ? -1 : Files::unlink(path); }
  int rmdir(const std::string& path) override { return fails() ? -1 : Files::rmdir(path); }

 private:
  bool fails() {
    const int call = calls_++;
    if (call == at_ && fault_ == Fault::killed) raise(SIGKILL);
    if (fault_ != Fault::error || (lasting_ ? call < at_ : call != at_)) return false;
    errno = error_;
    return true;
  }
  Fault fault_;
  int at_, error_;
  bool lasting_;
  int calls_ = 0;
};

}  // namespace tandem::testing
