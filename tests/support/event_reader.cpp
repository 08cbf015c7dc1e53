#include "event_reader.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>

#include <gtest/gtest.h>

#include "test_files.h"

namespace tandem::testing {
namespace {

// CRC-32C by its definition: a division of polynomials, bit by bit.
std::uint32_t masked_crc(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const bool out = ((crc ^ static_cast<std::uint32_t>(static_cast<unsigned char>(c)) >> bit) & 1) != 0;
      crc = crc >> 1 ^ (out ? 0x82f63b78u : 0u);
    }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }
  std::string_view take(std::size_t count) {
    if (count > rest_.size()) throw std::runtime_error("a record ends too early");
    const std::string_view head = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return head;
  }
  template <class T> T fixed() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string_view bytes() { return take(varint()); }

 private:
  std::string_view rest_;
};

// Calls f(number and wire type, message) for each field; f consumes the value.
template <class F> void each_field(std::string_view message, F f) {
  for (Bytes rest(message); !rest.empty();) f(rest.varint(), rest);
}

constexpr std::uint64_t field(std::uint64_t number, std::uint64_t wire) { return number << 3 | wire; }

ReadScalar read_summary(std::string_view summary, std::int64_t step) {
  ReadScalar scalar{.tag = {}, .step = step};
  each_field(summary, [&](std::uint64_t key, Bytes& rest) {
    EXPECT_EQ(field(1, 2), key);
    each_field(rest.bytes(), [&](std::uint64_t of_value, Bytes& value) {
      if (of_value == field(1, 2))
        scalar.tag = value.bytes();
      else if (of_value == field(2, 5))
        scalar.value = value.fixed<float>();
      else
        throw std::runtime_error("an unknown field of a Value");
    });
  });
  return scalar;
}

void read_event(std::string_view event, ReadEvents& events) {
  std::int64_t step = 0;
  double time = 0;
  each_field(event, [&](std::uint64_t key, Bytes& rest) {
    if (key == field(1, 1)) {
      time = rest.fixed<double>();
    } else if (key == field(2, 0)) {
      step = static_cast<std::int64_t>(rest.varint());
    } else if (key == field(3, 2)) {
      events.version = rest.bytes();
    } else if (key == field(10, 2)) {
      EXPECT_EQ("\x0a\x06tandem", rest.bytes()) << "SourceMetadata";
    } else if (key == field(5, 2)) {
      events.scalars.push_back(read_summary(rest.bytes(), step));
    } else if (key == field(7, 2)) {
      EXPECT_EQ("\x08\x01", rest.bytes()) << "status START";
      events.starts.push_back(step);
    } else {
      throw std::runtime_error("an unknown field of an Event");
    }
  });
  EXPECT_GT(time, 1.7e9);
  EXPECT_LT(time, 1e11);
}

}  // namespace

ReadEvents read_events(const std::string& file) {
  const std::string all = read_file(file);
  ReadEvents events;
  for (Bytes rest(all); !rest.empty();) {
    const std::string_view length = rest.take(8);
    EXPECT_EQ(masked_crc(length), rest.fixed<std::uint32_t>());
    const std::string_view event = rest.take(Bytes(length).fixed<std::uint64_t>());
    EXPECT_EQ(masked_crc(event), rest.fixed<std::uint32_t>());
    read_event(event, events);
  }
  return events;
}

}  // namespace tandem::testing
