// Axis: ticks and units.
#include "weft/plan/report/axis.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <utility>

namespace weft::plan {
namespace {

struct Unit {
  double size;
  const char* name;
};

std::string in_unit(double value, double scale, const Unit* begin, const Unit* end) {
  const Unit* unit = begin;  // the largest first
  while (unit + 1 != end && std::abs(scale) < unit->size * 0.9995) ++unit;
  return fmt::format("{:.3g}{}", value / unit->size, unit->name);
}

}  // namespace

std::vector<double> round_ticks(double end, int most) {
  std::vector<double> ticks;
  if (!(end > 0) || !std::isfinite(end)) return {0};
  double step = std::pow(10, std::floor(std::log10(end / most)));
  for (const double times : {1.0, 2.0, 5.0, 10.0})
    if (end / (step * times) <= most) {
      step *= times;
      break;
    }
  for (int i = 0; i <= most && i * step <= end * (1 + 1e-9); ++i) ticks.push_back(i * step);
  return ticks;
}

std::string time_text(double seconds, double scale) {
  constexpr Unit kUnits[] = {{1, " s"}, {1e-3, " ms"}, {1e-6, " µs"}, {1e-9, " ns"}};
  if (seconds == 0) return "0";
  if (scale >= 1000) return fmt::format("{:.0f} s", seconds);
  return in_unit(seconds, scale, std::begin(kUnits), std::end(kUnits));
}

std::string bytes_text(double bytes) {
  constexpr Unit kUnits[] = {{double(1LL << 40), " TiB"},
                             {double(1 << 30), " GiB"},
                             {double(1 << 20), " MiB"},
                             {double(1 << 10), " KiB"},
                             {1, " B"}};
  if (bytes == 0) return "0";
  return in_unit(bytes, bytes, std::begin(kUnits), std::end(kUnits));
}

std::string count_text(double value) {
  constexpr Unit kUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}};
  return in_unit(value, value, std::begin(kUnits), std::end(kUnits));
}

}  // namespace weft::plan
