// NumberText: the numbers of JSON as grammar, within bounds.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weft/serve/constrain/grammar_builder.h"

namespace weft::constrain {

// A number by its digits.
struct Decimal {
  bool is_negative = false;
  int64_t whole = 0;          // up to 18 digits
  std::string fraction = {};  // up to 17, without zeros at the end
};
// What a number of JSON says; nothing when it has more digits.
std::optional<Decimal> read_decimal(std::string_view number);

// What numbers are asked to be; absent: anything.
struct NumberBounds {
  std::optional<Decimal> min, max;
  bool excludes_min = false, excludes_max = false;
  std::optional<Decimal> multiple_of;
  bool is_bounded() const { return min || max || multiple_of; }
};

// Numbers have up to 18 digits before the point, 17 behind it, and an exponent of two where they have no bounds. Near
// a bound that is excluded they have 15 digits, so that none is rounded to it. Multiples are exact ones of the number
// in decimals; those of over kMostMultiple in units of their last digit are refused with a UsageError.
class NumberText {
 public:
  static constexpr int64_t kMostMultiple = 4096;
  explicit NumberText(GrammarBuilder& builder) : builder_(builder) {}

  Element number(const NumberBounds& bounds);
  Element integer(const NumberBounds& bounds);

 private:
  Element multiples(const NumberBounds& bounds, bool is_integer);
  Element reals(const NumberBounds& bounds);
  Element whole_numbers(const NumberBounds& bounds);
  Element digits(int64_t min, int64_t max);
  Element natural(int64_t min, int64_t max);  // without leading zeros; both are in it
  Element same_length(std::string_view low, std::string_view high);
  void add_reals(std::string_view sign, const NumberBounds& bounds, std::vector<Sequence>& out);
  // What may follow the whole part: nothing, or a point and digits.
  struct FractionBounds;
  Element fraction(const FractionBounds& bounds);
  Element fraction_digits(const FractionBounds& bounds, size_t at);

  GrammarBuilder& builder_;
};

}  // namespace weft::constrain
