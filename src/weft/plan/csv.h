// read_csv: a table with a header line, quoted fields allowed, as rows of named fields.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace weft::plan {

using CsvRow = std::map<std::string, std::string, std::less<>>;
// RFC 4180. Throws UsageError naming `source` and the line of a row that has another number of fields.
std::vector<CsvRow> read_csv(std::string_view text, const std::string& source);

}  // namespace weft::plan
