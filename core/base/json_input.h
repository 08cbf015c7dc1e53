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

/// The text of a file. Throws Error naming it, as `what` ("plan"), and the reason, also when it has more than
/// `most` bytes: Programs of 100,000 steps have fewer than the default.
std::string read_text(const std::string& what, const std::string& file, std::size_t most = 100'000'000);

/// A value in JSON that a user wrote, read strictly: nothing is converted, cut to fit, or given twice.
/// Errors say where the value is, what was given and what is accepted.
class JsonInput {
 public:
  /// `what` begins all errors. Throws Error when the text is no JSON, or an object has a key twice.
  static JsonInput parse(const std::string& what, const std::string& text);

  /// An object's entry; one that is absent has the value `otherwise` below, no items and no entries.
  JsonInput operator[](const std::string& key) const;
  bool present() const { return value_ != nullptr; }
  bool is_object() const;
  /// The same value. Throws Error when it is absent.
  const JsonInput& required() const;
  /// The same value, named in errors: "instruction 'F'".
  JsonInput called(const std::string& name) const;
  /// Throws Error unless this is an object with these keys, or some of them.
  void require_keys(std::initializer_list<const char*> known) const;

  template <class T>
  T integer(T otherwise, T least = std::numeric_limits<T>::min(),
            T most = std::numeric_limits<T>::max()) const {
    return static_cast<T>(whole(otherwise, least, most));
  }
  double number(double otherwise, double least, double most) const;
  bool flag(bool otherwise) const;
  std::string text(const std::string& otherwise = {}) const;
  std::vector<JsonInput> items() const;                            ///< of an array
  std::vector<std::string> texts() const;                          ///< of an array of texts
  std::vector<std::pair<std::string, JsonInput>> entries() const;  ///< of an object, in the order written

 private:
  JsonInput(std::string what, std::string where, std::shared_ptr<const void> value);
  std::int64_t whole(std::int64_t otherwise, std::int64_t least, std::int64_t most) const;
  [[noreturn]] void refuse(const std::string& accepted) const;
  /// A part of this value: kept alive by it, found at `place` in it.
  JsonInput part(const std::string& place, const void* value) const;

  std::string what_, where_;
  std::shared_ptr<const void> value_;  // JSON, kept out of this header; null: absent
};

}  // namespace tandem::engine
