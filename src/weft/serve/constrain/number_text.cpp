// NumberText: ranges digit by digit; multiples by the remainder of what was read.
#include "weft/serve/constrain/number_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "weft/base/error.h"
#include "weft/serve/constrain/text_automaton.h"

namespace weft::constrain {
namespace {

constexpr int64_t kMostDigits = 18, kMostFraction = 17;
constexpr int64_t kLargest = 999'999'999'999'999'999;  // of 18 digits
constexpr int64_t kExactDigits = 15;                   // doubles tell any two such numbers apart

int64_t num_digits(int64_t value) { return int64_t(fmt::to_string(value).size()); }

bool is_zero(const Decimal& d) { return d.whole == 0 && d.fraction.empty(); }
int64_t as_whole(const Decimal& d) { return d.is_negative ? -d.whole : d.whole; }

// Texts of digits, a sign and a point, by the remainder of their digits: a row to each remainder and place, with
// columns for the digits, "." and "-".
class Remainders {
 public:
  explicit Remainders(const Decimal& unit) : places_(int64_t(unit.fraction.size())) {
    const auto too_large = [] {
      throw UsageError("multipleOf is not supported over {} units of its last digit", NumberText::kMostMultiple);
    };
    if (unit.whole > NumberText::kMostMultiple) too_large();
    divisor_ = unit.whole;
    for (const char digit : unit.fraction) {
      divisor_ = divisor_ * 10 + (digit - '0');
      if (divisor_ > NumberText::kMostMultiple) too_large();
    }
    make_rows();
    merge_alike();
  }

  TextAutomaton automaton() const {
    std::vector<TextAutomaton::Row> rows;
    std::vector<bool> accepts;
    for (const size_t state : kept_) {
      TextAutomaton::Row& row = rows.emplace_back();
      row.fill(TextAutomaton::kNowhere);
      for (size_t c = 0; c < kColumns; ++c) row[uint8_t(kCharacters[c])] = class_of(rows_[state][c]);
      accepts.push_back(accepts_[state]);
    }
    return {std::move(rows), std::move(accepts)};
  }

 private:
  static constexpr size_t kColumns = 12;
  static constexpr std::string_view kCharacters = "0123456789.-";
  using Row = std::array<int32_t, kColumns>;

  // Place 0 is before the point, place 1 + n behind it with n digits.
  void make_rows() {
    for (int64_t place = 0; place <= places_ + 1; ++place) {
      int64_t scale = 1;  // of what is read to the unit's last digit
      for (int64_t i = std::max<int64_t>(place - 1, 0); i < places_; ++i) scale = scale * 10 % divisor_;
      for (int64_t rest = 0; rest < divisor_; ++rest) {
        Row& row = rows_.emplace_back();
        row.fill(TextAutomaton::kNowhere);
        const int64_t next = place == 0 ? 0 : place + 1;
        for (int64_t digit = 0; digit < 10 && next <= places_ + 1; ++digit)
          row[size_t(digit)] = int32_t(next * divisor_ + (rest * 10 + digit) % divisor_);
        if (place == 0) row[10] = int32_t(divisor_ + rest), row[11] = int32_t(rest);
        accepts_.push_back(rest * scale % divisor_ == 0);
      }
    }
  }

  int32_t class_of(int32_t state) const {
    return state == TextAutomaton::kNowhere ? state : int32_t(classes_[size_t(state)]);
  }
  // States that accept the same texts become one (Moore, 1956): they are parted until nothing parts them any more.
  void merge_alike() {
    for (const bool accepts : accepts_) classes_.push_back(accepts ? 1 : 0);
    for (size_t count = 0; count != kept_.size() || count == 0;) {
      count = kept_.size();
      kept_.clear();
      std::map<std::pair<size_t, Row>, size_t> known;
      std::vector<size_t> parted;
      for (size_t state = 0; state < rows_.size(); ++state) {
        Row to = rows_[state];
        for (int32_t& next : to) next = class_of(next);
        const auto [entry, is_new] = known.try_emplace({classes_[state], to}, known.size());
        if (is_new) kept_.push_back(state);
        parted.push_back(entry->second);
      }
      classes_ = std::move(parted);
    }
  }

  const int64_t places_;
  int64_t divisor_ = 0;
  std::vector<Row> rows_;
  std::vector<bool> accepts_;
  std::vector<size_t> classes_, kept_;
};

}  // namespace

std::optional<Decimal> read_decimal(std::string_view number) {
  Decimal result{.is_negative = number.starts_with('-')};
  if (result.is_negative) number.remove_prefix(1);
  const size_t e = std::min(number.find_first_of("eE"), number.size());
  int64_t exponent = 0;
  if (e < number.size()) {
    std::string_view text = number.substr(e + 1);
    if (text.starts_with('+')) text.remove_prefix(1);
    if (std::from_chars(text.data(), text.data() + text.size(), exponent).ec != std::errc()) return {};
  }
  std::string all;
  int64_t point = -1;
  for (const char c : number.substr(0, e)) {
    if (c == '.')
      point = int64_t(all.size());
    else
      all += c;
  }
  if (point < 0) point = int64_t(all.size());
  if (all.find_first_not_of('0') == std::string::npos) return Decimal();
  if (exponent < -400 || exponent > 400) return {};
  point += exponent;
  if (point < 0) all.insert(0, size_t(-point), '0'), point = 0;
  if (point > int64_t(all.size())) all.append(size_t(point) - all.size(), '0');
  std::string whole = all.substr(0, size_t(point));
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  result.fraction = all.substr(size_t(point));
  result.fraction.erase(result.fraction.find_last_not_of('0') + 1);
  if (int64_t(whole.size()) > kMostDigits || int64_t(result.fraction.size()) > kMostFraction) return {};
  std::from_chars(whole.data(), whole.data() + whole.size(), result.whole);
  return result;
}

Element NumberText::digits(int64_t min, int64_t max) {
  return builder_.repeat({builder_.code_points({{'0', '9'}})}, min, max);
}

// Numbers of as many digits as both have.
Element NumberText::same_length(std::string_view low, std::string_view high) {
  const int64_t rest = int64_t(low.size()) - 1;
  const auto digit = [&](char first, char last) { return builder_.code_points({{char32_t(first), char32_t(last)}}); };
  const bool is_free =
      low.find_first_not_of('0') == std::string_view::npos && high.find_first_not_of('9') == std::string_view::npos;
  if (is_free) return digits(rest + 1, rest + 1);
  if (rest == 0) return digit(low[0], high[0]);
  const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  if (low[0] == high[0]) return builder_.one_of({{digit(low[0], low[0]), same_length(low_rest, high_rest)}});
  const std::string zeros(size_t(rest), '0'), nines(size_t(rest), '9');
  std::vector<Sequence> ways{{digit(low[0], low[0]), same_length(low_rest, nines)},
                             {digit(high[0], high[0]), same_length(zeros, high_rest)}};
  if (high[0] - low[0] > 1) ways.push_back({digit(char(low[0] + 1), char(high[0] - 1)), digits(rest, rest)});
  return builder_.one_of(ways);
}

Element NumberText::natural(int64_t min, int64_t max) {
  std::vector<Sequence> ways;
  int64_t first = 0, last = 9;  // of the numbers with so many digits
  for (int64_t n = 1; n <= kMostDigits; ++n) {
    const int64_t low = std::max(first, min), high = std::min(last, max);
    if (low <= high) ways.push_back({same_length(fmt::to_string(low), fmt::to_string(high))});
    if (n < kMostDigits) first = last + 1, last = last * 10 + 9;
  }
  return builder_.one_of(ways);
}

// Of an integer the bounds are the next whole numbers inside them.
Element NumberText::whole_numbers(const NumberBounds& bounds) {
  const auto inside = [](const Decimal& bound, bool excludes, bool is_lower) {
    const int64_t step = is_lower ? 1 : -1, whole = as_whole(bound);
    if (bound.fraction.empty()) return excludes ? whole + step : whole;
    return bound.is_negative == is_lower ? whole : whole + step;  // cut off towards zero
  };
  const int64_t min = bounds.min ? std::max(inside(*bounds.min, bounds.excludes_min, true), -kLargest) : -kLargest;
  const int64_t max = bounds.max ? std::min(inside(*bounds.max, bounds.excludes_max, false), kLargest) : kLargest;
  std::vector<Sequence> ways;
  if (max >= 0 && min <= max) ways.push_back({natural(std::max<int64_t>(min, 0), max)});
  if (min < 0 && min <= max)
    ways.push_back(builder_.literal("-") + Sequence{natural(-std::min<int64_t>(max, -1), -min)});
  return builder_.one_of(ways);
}

Element NumberText::multiples(const NumberBounds& bounds, bool is_integer) {
  const TextAutomaton within = TextAutomaton::of([&](GrammarBuilder& builder) {
    NumberText text(builder);
    return is_integer ? text.whole_numbers(bounds) : text.reals(bounds);
  });
  const TextAutomaton both = within & Remainders(*bounds.multiple_of).automaton();
  return both.element(builder_, [](uint8_t) { return std::vector<Sequence>(); });
}

Element NumberText::integer(const NumberBounds& bounds) {
  if (bounds.multiple_of) return multiples(bounds, true);
  if (bounds.is_bounded()) return whole_numbers(bounds);
  const Element size =
      builder_.one_of({builder_.literal("0"), {builder_.code_points({{'1', '9'}}), digits(0, kMostDigits - 1)}});
  return builder_.one_of({{builder_.optional(builder_.literal("-")), size}});
}

// Digits of a fraction between two others, as if zeros stood behind all of them.
struct NumberText::FractionBounds {
  std::string_view low = {}, high = {};
  bool has_low = false, has_high = false;  // while false, that side is free
  bool excludes_low = false, excludes_high = false;
  int64_t most = kMostFraction;
};

Element NumberText::fraction(const FractionBounds& bounds) {
  // Without a point the fraction is zero.
  const bool is_low = bounds.has_low && (!bounds.low.empty() || bounds.excludes_low);
  const bool is_high = bounds.has_high && bounds.high.empty() && bounds.excludes_high;
  std::vector<Sequence> ways{builder_.literal(".") + Sequence{fraction_digits(bounds, 0)}};
  if (!is_low && !is_high) ways.push_back({});
  return builder_.one_of(ways);
}

// What may come when `at` digits did, which were those of the bounds that still hold.
Element NumberText::fraction_digits(const FractionBounds& bounds, size_t at) {
  if (!bounds.has_low && !bounds.has_high) return digits(at == 0 ? 1 : 0, bounds.most - int64_t(at));
  const auto digit_of = [&](std::string_view text) { return at < text.size() ? text[at] : '0'; };
  const auto is_over = [&](std::string_view text) { return at >= text.size(); };
  std::vector<Sequence> ways;
  const bool is_low_met = !bounds.has_low || (is_over(bounds.low) && !bounds.excludes_low);
  const bool is_high_met = !bounds.has_high || !is_over(bounds.high) || !bounds.excludes_high;
  if (at > 0 && is_low_met && is_high_met) ways.push_back({});
  if (int64_t(at) >= bounds.most) return builder_.one_of(ways);
  const auto add = [&](char first, char last, bool has_low, bool has_high) {
    FractionBounds rest = bounds;
    rest.has_low = has_low, rest.has_high = has_high;
    if (first <= last)
      ways.push_back({builder_.code_points({{char32_t(first), char32_t(last)}}), fraction_digits(rest, at + 1)});
  };
  const char low = bounds.has_low ? digit_of(bounds.low) : '0', high = bounds.has_high ? digit_of(bounds.high) : '9';
  if (bounds.has_low && bounds.has_high && low >= high) {
    add(low, high, true, true);
  } else {
    if (bounds.has_low) add(low, low, true, false);
    add(char(low + bounds.has_low), char(high - bounds.has_high), false, false);
    if (bounds.has_high) add(high, high, false, true);
  }
  return builder_.one_of(ways);
}

// Numbers that are not negative, behind a sign; so are the bounds, min is one of them.
void NumberText::add_reals(std::string_view sign, const NumberBounds& bounds, std::vector<Sequence>& out) {
  const Decimal min = *bounds.min, max = bounds.max.value_or(Decimal{.whole = kLargest});
  FractionBounds fractions{.low = min.fraction,
                           .high = max.fraction,
                           .excludes_low = bounds.excludes_min,
                           .excludes_high = bounds.excludes_max};
  const auto exact = [](const Decimal& bound) {
    return std::max<int64_t>(kExactDigits - num_digits(bound.whole), 1);
  };
  if (bounds.excludes_min) fractions.most = std::min(fractions.most, exact(min));
  if (bounds.excludes_max) fractions.most = std::min(fractions.most, exact(max));
  const auto add = [&](int64_t first, int64_t last, bool has_low, bool has_high) {
    if (first > last) return;
    fractions.has_low = has_low, fractions.has_high = has_high;
    out.push_back(builder_.literal(sign) + Sequence{natural(first, last), fraction(fractions)});
  };
  const bool has_max = bounds.max.has_value();
  if (has_max && min.whole > max.whole) return;
  if (has_max && min.whole == max.whole) return add(min.whole, min.whole, true, true);
  add(min.whole, min.whole, true, false);
  add(min.whole + 1, has_max ? max.whole - 1 : max.whole, false, false);
  if (has_max && min.whole < max.whole) add(max.whole, max.whole, false, true);
}

Element NumberText::reals(const NumberBounds& bounds) {
  std::vector<Sequence> ways;
  if (!bounds.max || !bounds.max->is_negative) {
    NumberBounds side = bounds;
    if (!bounds.min || bounds.min->is_negative) side.min = Decimal(), side.excludes_min = false;
    add_reals("", side, ways);
  }
  if (!bounds.min || bounds.min->is_negative) {
    // -x for x between -max and -min.
    NumberBounds side{.min = Decimal(), .max = bounds.min, .excludes_max = bounds.excludes_min};
    if (side.max) side.max->is_negative = false;
    const bool is_below = bounds.max && (bounds.max->is_negative || is_zero(*bounds.max));
    if (is_below) side.min = bounds.max, side.min->is_negative = false, side.excludes_min = bounds.excludes_max;
    add_reals("-", side, ways);
  }
  return builder_.one_of(ways);
}

Element NumberText::number(const NumberBounds& bounds) {
  if (bounds.multiple_of) return multiples(bounds, false);
  if (bounds.is_bounded()) return reals(bounds);
  const Element fraction = builder_.optional(builder_.literal(".") + Sequence{digits(1, kMostFraction)});
  const Sequence e{builder_.bytes(ByteSet().set('e').set('E')),
                   builder_.optional({builder_.bytes(ByteSet().set('+').set('-'))}), digits(1, 2)};
  return builder_.one_of({{integer({}), fraction, builder_.optional(e)}});
}

}  // namespace weft::constrain
