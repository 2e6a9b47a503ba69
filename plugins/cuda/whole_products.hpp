// Products of integers of 32 and 64 bits, which no library multiplies: by the tiles of plugins/common.
#pragma once

#include <array>
#include <cstdint>

#include "plugins/cuda/kernel.hpp"

namespace backplane::cuda {

common::TypeList whole_types();
bool is_whole(DataType type);

/// y = a b. Steps are in elements; columns of y lie together, and the batch has two axes.
struct WholeProduct {
  DataType type = DataType::Int32;
  device_ops::MemoryRef a = input(0), b = input(1), y = output(0);
  std::int64_t rows = 0, columns = 0, depth = 0;
  std::int64_t a_row = 0, a_step = 1, b_row = 0, b_step = 1, y_row = 0;
  std::int64_t outer = 1, inner = 1;
  std::array<std::int64_t, 2> a_batch{}, b_batch{}, y_batch{};
};

void add_product(device_ops::Work& work, const WholeProduct& p);

}  // namespace backplane::cuda
