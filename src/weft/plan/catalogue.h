// The hardware that the program knows without a file, as TOML texts with the source of each figure.
#pragma once
#include <span>
#include <string_view>

namespace weft::plan {

struct CatalogueEntry {
  std::string_view name, text;
};
std::span<const CatalogueEntry> catalogue();

}  // namespace weft::plan
