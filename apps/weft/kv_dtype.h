// --kv-dtype: how a cache holds keys and values.
#pragma once
#include <optional>
#include <string>

#include "command.h"
#include "weft/kernels/row_codes.h"

namespace weft::app {

// format: none for "auto", the model's own dtype.
void add_kv_dtype(CLI::App& command, std::optional<RowFormat>& format);

// "fp32", "int8", ...
std::string kv_dtype_name(const RowFormat& format);

}  // namespace weft::app
