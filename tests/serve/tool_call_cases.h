// What a model wrote, and the content and calls that it has, wherever the text is parted.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "weft/serve/api/tool_calls.h"

namespace weft::api {

struct ToolCallCase {
  const char* name;
  ToolFormat format;
  std::string text, content;
  std::vector<std::pair<std::string, std::string>> calls;
};

inline void expect_read_however_parted(const ToolCallCase& c) {
  for (const size_t step : {size_t(1), size_t(3), size_t(4), size_t(7), c.text.size()}) {
    ToolCallParser parser(c.format);
    std::string content;
    std::vector<std::pair<std::string, std::string>> calls;
    const auto take = [&](const ToolCallParser::Output& output) {
      content += output.content;
      for (const ToolCall& call : output.calls) calls.emplace_back(call.name, call.arguments);
    };
    for (size_t at = 0; at < c.text.size(); at += step) take(parser.push(std::string_view(c.text).substr(at, step)));
    take(parser.finish());
    EXPECT_EQ(content, c.content) << "in steps of " << step;
    EXPECT_EQ(calls, c.calls) << "in steps of " << step;
  }
}

}  // namespace weft::api
