#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tandem::engine {

/// Returns the text of a file. A pipe (`/dev/stdin`, a shell's `<(command)`, a FIFO) is read to its end,
/// which waits for its writers. Throws Error naming the file, as `what` ("plan"), and the reason if it cannot
/// be read, is an empty pipe without a writer, or has more than `most` bytes. Programs of 100,000
/// instructions have fewer than the default.
std::string read_text(const std::string& what, const std::string& file, std::size_t most = 100'000'000);

/// A JSON value written by a user, read strictly: nothing is converted or truncated, and no key comes twice.
/// Errors say where the value is, what was given and what is accepted.
class JsonInput {
 public:
  /// All errors begin with `what`. Throws Error if the text is not JSON, or an object has a key twice.
  static JsonInput parse(const std::string& what, const std::string& text);

  /// Returns an object's entry. An absent one has the value `otherwise` below, no items and no entries.
  JsonInput operator[](const std::string& key) const;
  bool present() const { return value_ != nullptr; }
  bool is_null() const;  ///< written as null
  bool is_object() const;
  bool is_array() const;
  /// Returns the entry `key`, or that of `old_key`, which older files have. Throws Error if both are present,
  /// or neither.
  JsonInput renamed(const std::string& key, const std::string& old_key) const;
  /// Returns this value. Throws Error if it is absent.
  const JsonInput& required() const;
  /// Returns this value with another name for errors: "instruction 'F'".
  JsonInput called(const std::string& name) const;
  /// Throws Error unless this is an object whose keys are all in `known`.
  void require_keys(std::initializer_list<const char*> known) const;

  template <class T>
  T integer(T otherwise, T least = std::numeric_limits<T>::min(),
            T most = std::numeric_limits<T>::max()) const {
    return static_cast<T>(whole(otherwise, least, most));
  }
  double number(double otherwise, double least, double most) const;
  bool flag(bool otherwise) const;
  /// Throws Error unless this flag is absent or `accepted`.
  void require_flag(bool accepted) const;
  std::string text(const std::string& otherwise = {}) const;
  /// Returns the place of this text in a list of those that are accepted.
  std::size_t one_of(const std::vector<std::string>& accepted) const;
  std::vector<JsonInput> items() const;    ///< of an array
  std::vector<std::string> texts() const;  ///< of an array of texts
  /// Of an object, in the order written, without the "format" and the "checksum" by which a file says that
  /// Tandem wrote it.
  std::vector<std::pair<std::string, JsonInput>> entries() const;

 private:
  JsonInput(std::string what, std::string where, std::shared_ptr<const void> value);
  std::int64_t whole(std::int64_t otherwise, std::int64_t least, std::int64_t most) const;
  [[noreturn]] void refuse(const std::string& accepted) const;
  /// Returns `value`, the part at `place` of this value; it keeps the whole value alive.
  JsonInput part(const std::string& place, const void* value) const;

  std::string what_, where_;
  std::shared_ptr<const void> value_;  // JSON, kept out of this header; null: absent
};

}  // namespace tandem::engine
