// DeviceTable: a constexpr array of the host in a kernel's hands.
#pragma once
#include <array>
#include <cstddef>

namespace weft::cuda {

template <class T, size_t N>
struct DeviceTable {
  T values[N];
};

template <class T, size_t N>
constexpr DeviceTable<T, N> device_table(const std::array<T, N>& from) {
  DeviceTable<T, N> table{};
  for (size_t i = 0; i < N; ++i) table.values[i] = from[i];
  return table;
}

}  // namespace weft::cuda
