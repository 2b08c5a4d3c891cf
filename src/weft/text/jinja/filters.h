// The tables of filters, one for each file that has some.
#pragma once
#include <span>

#include "weft/text/jinja/library.h"

namespace weft::jinja {

struct FilterRow {
  std::string_view name;
  Filter filter;
};
std::span<const FilterRow> text_filters();
std::span<const FilterRow> list_filters();

}  // namespace weft::jinja
