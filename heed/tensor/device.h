// Where a tensor lives and what its numbers are.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "heed/kernels/view.h"

namespace heed {

enum class Device : uint8_t { cpu, cuda };

// f32 for work, f64 for checks, bf16 for storage, i32 for ids, i8 for weights that do not change
// (ops/int8.h).
enum class Type : uint8_t { f32, f64, bf16, i32, i8 };

constexpr const char* name(Device d) { return d == Device::cpu ? "cpu" : "cuda"; }
constexpr const char* name(Type t) {
  switch (t) {
    case Type::f32: return "f32";
    case Type::f64: return "f64";
    case Type::bf16: return "bf16";
    case Type::i32: return "i32";
    case Type::i8: return "i8";
  }
  return "?";
}
constexpr size_t size_of(Type t) {
  constexpr size_t sizes[] = {4, 8, 2, 4, 1};
  return sizes[static_cast<size_t>(t)];
}

// The type in which numbers of this type are summed, and kept where they must be exact.
constexpr Type wide(Type t) { return t == Type::bf16 ? Type::f32 : t; }

template <class T>
constexpr Type type_of();
template <>
constexpr Type type_of<float>() {
  return Type::f32;
}
template <>
constexpr Type type_of<double>() {
  return Type::f64;
}
template <>
constexpr Type type_of<bf16>() {
  return Type::bf16;
}
template <>
constexpr Type type_of<Id>() {
  return Type::i32;
}
template <>
constexpr Type type_of<int8_t>() {
  return Type::i8;
}

}  // namespace heed
