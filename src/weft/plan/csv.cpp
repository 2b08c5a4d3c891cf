// read_csv: fields one character at a time.
#include "weft/plan/csv.h"

#include "weft/base/error.h"

namespace weft::plan {

std::vector<CsvRow> read_csv(std::string_view text, const std::string& source) {
  std::vector<CsvRow> rows;
  std::vector<std::string> header, fields(1);
  bool is_quoted = false;
  int line = 1;
  const auto end_row = [&] {
    if (fields.size() == 1 && fields[0].empty()) return;
    if (header.empty()) {
      header = fields;
    } else {
      if (fields.size() != header.size())
        throw UsageError("{}:{}: {} fields, the header has {}", source, line, fields.size(), header.size());
      CsvRow& row = rows.emplace_back();
      for (size_t i = 0; i < fields.size(); ++i) row[header[i]] = std::move(fields[i]);
    }
    fields.assign(1, {});
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    line += c == '\n';
    if (is_quoted) {
      if (c != '"')
        fields.back() += c;
      else if (i + 1 < text.size() && text[i + 1] == '"')
        fields.back() += text[++i];
      else
        is_quoted = false;
    } else if (c == '"') {
      is_quoted = true;
    } else if (c == ',') {
      fields.emplace_back();
    } else if (c == '\n') {
      end_row();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  if (is_quoted) throw UsageError("{}: a quoted field does not end", source);
  end_row();
  return rows;
}

}  // namespace weft::plan
