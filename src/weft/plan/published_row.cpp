// PublishedRow: fields as numbers.
#include "weft/plan/published_row.h"

#include <cmath>
#include <cstdlib>

#include "weft/base/error.h"
#include "weft/base/excerpt.h"

namespace weft::plan {
namespace {

// Of a whole field, spaces around it apart; NaN where it is none.
double number_of(const std::string& field) {
  char* end = nullptr;
  const double value = std::strtod(field.c_str(), &end);
  const bool is_number =
      end != field.c_str() && field.find_first_not_of(" \t", size_t(end - field.c_str())) == field.npos;
  return is_number ? value : std::nan("");
}

}  // namespace

const std::string& PublishedRow::text(const char* key) const {
  const auto found = row.find(key);
  if (found == row.end()) throw UsageError("column {} is missing: see docs/planning.md", key);
  return found->second;
}

double PublishedRow::number(const char* key, double otherwise) const {
  const std::string& field = text(key);
  if (field.empty()) return otherwise;
  constexpr double kMost = 1e15;
  const double value = number_of(field);
  if (!(value >= 0 && value <= kMost))
    throw UsageError("{} = \"{}\": write a number from 0 to {}, or nothing", key, excerpt(field), kMost);
  return value;
}

int64_t PublishedRow::integer(const char* key, int64_t otherwise, int64_t min, int64_t max) const {
  const std::string& field = text(key);
  if (field.empty()) return otherwise;
  const double value = number_of(field);
  if (!(value >= double(min) && value <= double(max)) || value != std::floor(value))
    throw UsageError("{} = \"{}\": write a whole number from {} to {}", key, excerpt(field), min, max);
  return int64_t(value);
}

int64_t PublishedRow::size(const char* key, int64_t max) const {
  if (text(key).empty()) throw UsageError("{} is empty: it must be known", key);
  return integer(key, 0, 1, max);
}

std::optional<double> PublishedRow::noted(std::string_view name, double min, double max) const {
  const std::string& notes = text("notes");
  const size_t at = notes.find(name);
  if (at == std::string::npos) return std::nullopt;
  const double value = std::strtod(notes.c_str() + at + name.size(), nullptr);
  if (!(value >= min && value <= max))
    throw UsageError("notes = \"{}\": write a number from {} to {} behind \"{}\"", excerpt(notes), min, max, name);
  return value;
}

}  // namespace weft::plan
