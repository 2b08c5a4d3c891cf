// Tracer: spans of many threads come out as a trace that parses, and nothing is kept when it is stopped or full.
#include "weft/train/trace.h"

#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "data/temp_folder.h"

namespace weft {
namespace {

nlohmann::json write_and_parse(const std::vector<const Tracer*>& tracers) {
  const TempFolder folder;
  int64_t origin = INT64_MAX;
  for (const Tracer* tracer : tracers) origin = std::min(origin, tracer->first_ns());
  std::vector<std::string> ranks;
  for (const Tracer* tracer : tracers) ranks.push_back(tracer->to_json(origin));
  write_trace(FileSystem::real(), folder.path("trace.json"), ranks);
  return nlohmann::json::parse(slurp(folder.path("trace.json")))["traceEvents"];
}

TEST(Tracer, WritesATrackPerRank) {
  Tracer first(0, 100), second(1, 100);
  first.start(), second.start();
  {
    const Tracer::Span outer = first.span("step");
    first.span("matmul").arg("flops", 2e9).arg("shape", "2x3");
    first.span("all_reduce", TraceTrack::communication).arg("bytes", 1024).arg("group", "dp");
  }
  second.record({.name = second.intern("layer \"1\"\n"),
                 .track = TraceTrack::pipeline,
                 .begin_ns = first.first_ns() + 1000,
                 .end_ns = first.first_ns() + 3500});
  std::map<std::string, nlohmann::json> events;
  int metadata = 0;
  for (const nlohmann::json& event : write_and_parse({&first, &second})) {
    if (event["ph"] == "M") {
      ++metadata;
    } else {
      events[event["name"]] = event;
    }
  }
  EXPECT_EQ(metadata, 8);  // for each of two ranks its own name and three tracks'
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events["step"]["ts"], 0.0);
  EXPECT_EQ(events["matmul"]["args"], nlohmann::json::parse(R"({"flops":2e9,"shape":"2x3"})"));
  EXPECT_EQ(events["all_reduce"]["tid"], 1);
  EXPECT_EQ(events["all_reduce"]["cat"], "communication");
  EXPECT_EQ(events["all_reduce"]["args"]["bytes"], 1024);
  EXPECT_EQ(events["all_reduce"]["args"]["group"], "dp");
  const nlohmann::json& last = events["layer \"1\"\n"];
  EXPECT_EQ(last["ph"], "X");
  EXPECT_EQ(last["pid"], 1);
  EXPECT_EQ(last["tid"], 2);
  EXPECT_DOUBLE_EQ(last["ts"], 1.0);
  EXPECT_DOUBLE_EQ(last["dur"], 2.5);
  const double step_end = events["step"]["ts"].get<double>() + events["step"]["dur"].get<double>();
  EXPECT_LE(events["matmul"]["ts"].get<double>() + events["matmul"]["dur"].get<double>(), step_end);
}

TEST(Tracer, ShowsAHostOfADevice) {
  Tracer tracer(0, 10);
  tracer.start();
  tracer.span("matmul", TraceTrack::host).end();
  const nlohmann::json events = write_and_parse({&tracer});
  ASSERT_EQ(events.size(), 6u);  // the rank, four tracks, the span
  EXPECT_EQ(events[4]["args"]["name"], "host");
  EXPECT_EQ(events[5]["cat"], "host");
  EXPECT_EQ(events[5]["tid"], events[4]["tid"]);
}

TEST(Tracer, KeepsNothingWhileStopped) {
  Tracer tracer(0, 10);
  tracer.span("before").end();
  tracer.start();
  tracer.span("during").end();
  tracer.stop();
  tracer.span("after").end();
  EXPECT_EQ(tracer.num_events(), 1);
  EXPECT_EQ(write_and_parse({&tracer}).size(), 5u);
}

TEST(Tracer, SaysWhatDidNotFit) {
  Tracer tracer(3, 10);
  tracer.start();
  for (int i = 0; i < 25; ++i) tracer.span("x").arg("a", 1).arg("b", 2).arg("c", 3).arg("d", 4).arg("e", 5);
  EXPECT_EQ(tracer.num_events(), 10);
  EXPECT_EQ(tracer.num_dropped(), 15);
  const nlohmann::json events = write_and_parse({&tracer});
  EXPECT_EQ(events[4]["args"].size(), 4u);  // the fifth argument has no room
  EXPECT_EQ(events.back()["args"]["labels"], "15 more events did not fit");
}

TEST(Tracer, RecordsFromManyThreads) {
  Tracer tracer(0, 4000);
  tracer.start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) tracer.span("work").arg("i", i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::map<int, int> counts;
  for (const nlohmann::json& event : write_and_parse({&tracer})) {
    if (event["ph"] == "X") ++counts[event["args"]["i"].get<int>()];
  }
  EXPECT_EQ(counts.size(), 1000u);
  for (const auto& [i, count] : counts) EXPECT_EQ(count, 4) << i;
}

TEST(Tracer, WritesAnEmptyTrace) {
  const Tracer tracer(0);
  EXPECT_EQ(write_and_parse({&tracer}).size(), 4u);
  EXPECT_EQ(write_and_parse({}).size(), 0u);
}

}  // namespace
}  // namespace weft
