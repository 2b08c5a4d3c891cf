// Axis: round numbers along a line, and how a time or a size is written.
#pragma once
#include <string>
#include <vector>

namespace weft::plan {

// At most `most` + 1 round numbers from 0 to `end`: steps of 1, 2 or 5 times a power of ten.
std::vector<double> round_ticks(double end, int most);

// "12 ms": in the unit in which `scale` is a number between 1 and 1000.
std::string time_text(double seconds, double scale);
inline std::string time_text(double seconds) { return time_text(seconds, seconds); }

// "1.5 GiB"; three digits.
std::string bytes_text(double bytes);

// "12.3k", "4.56M".
std::string count_text(double value);

}  // namespace weft::plan
