// PublishedRow: a row of a table of published runs, by its columns.
#pragma once
#include <optional>
#include <string_view>

#include "weft/plan/csv.h"

namespace weft::plan {

// The fields of a row. What cannot be read or is out of range is a UsageError that names the column, the value and
// what to write.
struct PublishedRow {
  const CsvRow& row;
  const std::string& text(const char* key) const;
  // A figure of at least 0, and a whole number from min to max; one that is not there is `otherwise`.
  double number(const char* key, double otherwise) const;
  int64_t integer(const char* key, int64_t otherwise, int64_t min, int64_t max) const;
  // One that must be there, from 1.
  int64_t size(const char* key, int64_t max) const;
  bool note(std::string_view part) const { return text("notes").find(part) != std::string::npos; }
  // The number from min to max behind "tflops_vs_6N+12Lhs=" and the like.
  std::optional<double> noted(std::string_view name, double min, double max) const;
};

}  // namespace weft::plan
