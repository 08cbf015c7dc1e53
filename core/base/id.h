#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace tandem::engine {

/// A position in a list of one kind of things: nodes, values, instructions, … −1 stands for none. Converts
/// from and to integers, but not to the id of another kind.
template <class Kind> class Id {
 public:
  constexpr Id() = default;
  template <std::integral I>
  requires(!std::same_as<I, bool>) constexpr Id(I position)
      : position_(static_cast<std::int32_t>(position)) {}
  constexpr operator std::int32_t() const { return position_; }
  constexpr Id& operator++() { return ++position_, *this; }
  constexpr Id operator++(int) { return position_++; }
  constexpr Id operator--(int) { return position_--; }

 private:
  std::int32_t position_ = -1;
};

// Ids of different kinds do not compare.
template <class A, class B>
requires(!std::same_as<A, B>) bool operator==(Id<A>, Id<B>) = delete;
template <class A, class B>
requires(!std::same_as<A, B>) bool operator<(Id<A>, Id<B>) = delete;

/// As a number, for fmt and for nlohmann's JSON.
template <class Kind> constexpr std::int32_t format_as(Id<Kind> id) { return id; }
template <class Json, class Kind> void to_json(Json& json, Id<Kind> id) { json = std::int32_t{id}; }

/// The ids 0 … end − 1, for loops.
template <class I> class IdRange {
 public:
  struct Iterator {
    I id;
    constexpr I operator*() const { return id; }
    constexpr Iterator& operator++() { return ++id, *this; }
    constexpr bool operator!=(const Iterator& other) const { return id != other.id; }
  };
  explicit constexpr IdRange(I end) : end_(end) {}
  constexpr Iterator begin() const { return {0}; }
  constexpr Iterator end() const { return {end_}; }

 private:
  I end_;
};

/// A vector whose elements are found by the ids of one kind.
template <class I, class T> class IdVector : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  IdVector() = default;
  explicit IdVector(std::vector<T> elements) : std::vector<T>(std::move(elements)) {}

  decltype(auto) operator[](I id) { return std::vector<T>::operator[](index(id)); }
  decltype(auto) operator[](I id) const { return std::vector<T>::operator[](index(id)); }
  decltype(auto) at(I id) { return std::vector<T>::at(index(id)); }
  decltype(auto) at(I id) const { return std::vector<T>::at(index(id)); }
  bool contains(I id) const { return id >= 0 && index(id) < this->size(); }
  /// All ids, or the elements so far if the vector grows later.
  IdRange<I> ids() const { return IdRange<I>(this->size()); }
  /// The id of the element that is added next.
  I next_id() const { return this->size(); }

 private:
  static std::size_t index(I id) { return static_cast<std::size_t>(std::int32_t{id}); }
};

}  // namespace tandem::engine

template <class Kind> struct std::hash<tandem::engine::Id<Kind>> {
  std::size_t operator()(tandem::engine::Id<Kind> id) const { return std::hash<std::int32_t>()(id); }
};
