#include <tandem/train/rank_talk.h>

#include <numeric>
#include <span>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/gather.h>

namespace tandem {

using namespace engine;

void RankTalk::broadcast(void* data, std::int64_t bytes) const {
  if (!comm_) return;
  std::vector<int> everyone(static_cast<std::size_t>(comm_->size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  comm_->broadcast(data, bytes, root_, everyone, kSessionChannel);
}

std::int64_t RankTalk::from_root(std::int64_t value) const {
  broadcast(&value, sizeof value);
  return value;
}

std::string RankTalk::from_root(std::string text) const {
  text.resize(static_cast<std::size_t>(from_root(std::ssize(text))));
  broadcast(text.data(), std::ssize(text));
  return text;
}

std::string RankTalk::on_root(const std::function<void()>& f) const {
  return from_root(is_root() ? message_of(f) : "");
}

std::string RankTalk::on_all(const std::function<void()>& f) const {
  const std::string mine = message_of(f);
  if (!comm_ || least(*comm_, mine.empty()) != 0) return mine;
  std::string first;
  const auto all = gather(*comm_, std::span<const char>(mine), root_, kSessionChannel);
  for (std::size_t r = 0; first.empty() && r < all.size(); ++r)
    if (!all[r].empty()) first = fmt::format("rank {}: {}", r, std::string(all[r].begin(), all[r].end()));
  return from_root(first);
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
    return "";
  } catch (const Aborted&) {
    throw;
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace tandem
