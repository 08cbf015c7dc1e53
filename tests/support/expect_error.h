#pragma once
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>

namespace tandem::test {

/// Runs `action`, which must throw an Error of one line that holds every one of `words`.
inline void expect_error(const std::function<void()>& action, const std::vector<std::string>& words) {
  try {
    action();
    ADD_FAILURE() << "no Error was thrown";
  } catch (const Error& e) {
    const std::string message = e.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const auto& word : words)
      EXPECT_NE(message.find(word), std::string::npos) << word << " is not in: " << message;
  }
}

}  // namespace tandem::test
