// The official openai client: WEFT_OPENAI_PYTHON names a Python that has it; skipped without.
#include <cstdlib>

#include "serve/test_server.h"

namespace weft {
namespace {

TEST(OpenaiClientTest, IsContentWithTheServer) {
  const char* const python = std::getenv("WEFT_OPENAI_PYTHON");
  if (!python) GTEST_SKIP() << "WEFT_OPENAI_PYTHON names no Python with the openai package";
  TestServer server;
  TestSetup setup{.engine = {.answer = saying("<think>Hm.</think>Hello, world.")}};
  setup.reasoning_format = api::ReasoningFormat::think;
  TestServer thinking(std::move(setup));
  const std::string command =
      fmt::format("'{}' '{}/tests/tools/openai_client.py' http://127.0.0.1:{}/v1 http://127.0.0.1:{}/v1", python,
                  WEFT_SOURCE_DIR, server.server.port(), thinking.server.port());
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace weft
