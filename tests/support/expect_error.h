#pragma once
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>

namespace tandem::testing {

/// The message of the exception of type E that `action` throws; empty if it throws none.
template <class E = Error> std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const E& e) {
    return e.what();
  }
  return {};
}

/// The message contains every one of `words`.
inline void expect_words(const std::string& message, const std::vector<std::string>& words) {
  for (const auto& word : words)
    EXPECT_NE(std::string::npos, message.find(word)) << "'" << word << "' is not in: " << message;
}

/// Runs `action`, which must throw an Error whose message is one line and contains every one of `words`.
inline void expect_error(const std::function<void()>& action, const std::vector<std::string>& words) {
  const std::string message = message_of(action);
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  if (message.empty())
    ADD_FAILURE() << "no Error was thrown";
  else
    expect_words(message, words);
}

}  // namespace tandem::testing
