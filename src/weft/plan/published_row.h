// PublishedRow: a row of a table of published runs, by its columns.
#pragma once
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "weft/base/error.h"
#include "weft/plan/csv.h"

namespace weft::plan {

// The fields of a row; a number that is not there is `otherwise`.
struct PublishedRow {
  const CsvRow& row;
  const std::string& text(const char* key) const {
    const auto found = row.find(key);
    if (found == row.end()) throw UsageError("column {} is missing: see docs/planning.md", key);
    return found->second;
  }
  double number(const char* key, double otherwise) const {
    const std::string& field = text(key);
    return field.empty() ? otherwise : std::strtod(field.c_str(), nullptr);
  }
  int64_t integer(const char* key, int64_t otherwise) const {
    return int64_t(std::llround(number(key, double(otherwise))));
  }
  bool note(std::string_view part) const { return text("notes").find(part) != std::string::npos; }
  // The number behind "tflops_vs_6N+12Lhs=" and the like.
  std::optional<double> noted(std::string_view name) const {
    const std::string& notes = text("notes");
    const size_t at = notes.find(name);
    if (at == std::string::npos) return std::nullopt;
    return std::strtod(notes.c_str() + at + name.size(), nullptr);
  }
};

}  // namespace weft::plan
