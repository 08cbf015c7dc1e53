#pragma once
#include <cctype>
#include <string>

namespace tandem::testing {

/// Returns the text as GoogleTest allows it in a test's name: '_' for what is no letter or digit.
inline std::string test_name(std::string text) {
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return text;
}

}  // namespace tandem::testing
