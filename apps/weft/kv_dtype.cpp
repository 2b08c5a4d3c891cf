// --kv-dtype: names of formats.
#include "kv_dtype.h"

#include "weft/base/error.h"

namespace weft::app {
namespace {

struct Named {
  const char* name;
  RowFormat format;
};
constexpr Named kFormats[] = {{"fp32", {DType::f32}},
                              {"bf16", {DType::bf16}},
                              {"fp16", {DType::f16}},
                              {"int8", RowFormat::of(RowCodes::int8)},
                              {"fp8", RowFormat::of(RowCodes::fp8)}};

std::optional<RowFormat> format_named(const std::string& name) {
  if (name == "auto") return {};
  for (const Named& n : kFormats)
    if (name == n.name) return n.format;
  throw UsageError("--kv-dtype {}: write auto, fp32, bf16, fp16, int8 or fp8", name);
}

}  // namespace

void add_kv_dtype(CLI::App& command, std::optional<RowFormat>& format) {
  command
      .add_option_function<std::string>(
          "--kv-dtype", [&format](const std::string& name) { format = format_named(name); },
          "Of keys and values: auto (the model's), fp32, bf16 or fp16; int8 or fp8, with a scale to each head of a "
          "token")
      ->default_str("auto");
}

std::string kv_dtype_name(const RowFormat& format) {
  for (const Named& n : kFormats)
    if (format == n.format) return n.name;
  return std::string(weft::name_of(format.dtype));
}

}  // namespace weft::app
