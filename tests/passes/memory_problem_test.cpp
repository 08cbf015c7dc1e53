// Files of `tandem plan memory`: each mistake is refused by name.
#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tandem/memory/memory_problem.h>

#include "drawn_memory_problem.h"
#include "expect_error.h"
#include "seed.h"
#include "temporary_directory.h"
#include "test_files.h"

namespace tandem::testing {
using namespace engine;
namespace {

using nlohmann::json;

// Two graphs of one layer each. Graph g has the values 10 g + 1 … 10 g + 5.
json pair() {
  json j{{"graphs", json::array()}, {"link", {{"bytes_per_ms", 10}, {"duplex", true}}}, {"static_bytes", 8}};
  for (const int g : {0, 1}) {
    const int x = 10 * g + 1, w = x + 1, a = x + 2, loss = x + 3, gradient = x + 4;
    const std::pair<int, const char*> values[] = {
        {x, "input"}, {w, "parameter"}, {a, "intermediate"}, {loss, "output"}, {gradient, "gradient"}};
    json of_graph = json::array();
    for (const auto& [id, kind] : values) of_graph.push_back({{"id", id}, {"bytes", 4}, {"kind", kind}});
    const auto node = [](const std::string& name, const char* phase, const json& in, const json& out) {
      return json{{"name", name},         {"phase", phase}, {"run_ms", 1},
                  {"workspace_bytes", 0}, {"inputs", in},   {"outputs", out}};
    };
    const std::string n = std::to_string(g);
    j["graphs"].push_back({{"name", "g" + n},
                           {"nodes",
                            {node("F" + n, "forward", {x, w}, {a}), node("L" + n, "forward", {a}, {loss}),
                             node("B" + n, "backward", {a}, {gradient}),
                             node("U" + n, "update", {gradient, w}, json::array())}},
                           {"values", of_graph}});
  }
  return j;
}

class MemoryProblemFile : public ::testing::Test {
 protected:
  MemoryProblem read(const std::string& text) const {
    write_file(directory_.file("pair.json"), text);
    return read_memory_problem(directory_.file("pair.json"));
  }
  void expect_refused(const std::string& text, std::vector<std::string> words) const {
    SCOPED_TRACE(text.substr(0, 2000));
    words.push_back("problem '" + directory_.file("pair.json") + "'");
    expect_error([&] { read(text); }, words);
  }

 private:
  const TemporaryDirectory directory_;
};

TEST_F(MemoryProblemFile, IsReadAsItWasWritten) {
  EXPECT_EQ(2U, read(pair().dump()).graphs.size());
  auto rng = generator("memory problems");
  for (int i = 0; i < 20; ++i) {
    const std::string text = to_json(drawn_problem(rng, 1 + i % 3, 1 + i % 5));
    EXPECT_EQ(text, to_json(read(text)));
  }
}

TEST_F(MemoryProblemFile, ValuesStandInTheirGraphsOrBesideThem) {
  json beside = pair();
  beside["values"] = json::array();
  for (json& graph : beside["graphs"]) {
    beside["values"].insert(beside["values"].end(), graph["values"].begin(), graph["values"].end());
    graph.erase("values");
  }
  EXPECT_EQ(to_json(read(pair().dump())), to_json(read(beside.dump())));
  json both = beside, none = beside, one = pair();
  both["graphs"][1]["values"] = json::array();
  expect_refused(both.dump(), {"\"values\" stands in a graph and beside the graphs"});
  none.erase("values");
  expect_refused(none.dump(), {"\"values\" is missing"});
  one["graphs"][1].erase("values");
  expect_refused(one.dump(), {"\"values\" is missing"});
}

struct Mistake {
  const char* what;
  std::function<void(json&)> make;
  std::vector<std::string> words;
};

json& node_of(json& j, int graph, int node) { return j["graphs"][graph]["nodes"][node]; }
json& values_of(json& j, int graph) { return j["graphs"][graph]["values"]; }
json& value_of(json& j, int value) { return values_of(j, value / 5)[value % 5]; }

TEST_F(MemoryProblemFile, WrongGraphsAreRefused) {
  const std::vector<Mistake> mistakes{
      {"an id twice",
       [](json& j) { values_of(j, 0).push_back(value_of(j, 2)); },
       {"\"values\" has the id 3 twice"}},
      {"an id in both graphs", [](json& j) { value_of(j, 7)["id"] = 3; }, {"\"values\" has the id 3 twice"}},
      {"an unknown input",
       [](json& j) { node_of(j, 0, 1)["inputs"] = {99}; },
       {"node 'L0' names the value 99, which \"values\" has not"}},
      {"an unknown output",
       [](json& j) { node_of(j, 1, 1)["outputs"] = {98}; },
       {"node 'L1' names the value 98, which \"values\" has not"}},
      {"two makers",
       [](json& j) {
         node_of(j, 0, 1)["outputs"] = {4, 3};
       },
       {"two nodes make value 3, or one makes it twice"}},
      {"one maker, twice",
       [](json& j) {
         node_of(j, 0, 0)["outputs"] = {3, 3};
       },
       {"two nodes make value 3, or one makes it twice"}},
      {"makers in both graphs",
       [](json& j) {
         node_of(j, 1, 1)["outputs"] = {14, 3};
       },
       {"value 3 is of graph 'g0', and node 'L1' of graph 'g1' uses it"}},
      {"a reader in the other graph",
       [](json& j) {
         node_of(j, 1, 2)["inputs"] = {13, 3};
       },
       {"value 3 is of graph 'g0', and node 'B1' of graph 'g1' uses it"}},
      {"a reader before the maker",
       [](json& j) {
         node_of(j, 0, 0)["inputs"] = {1, 2, 4};
       },
       {"node 'F0' reads value 4 before a node makes it"}},
      {"a reader that is the maker",
       [](json& j) { node_of(j, 0, 0)["inputs"] = {3}; },
       {"node 'F0' reads value 3 before a node makes it"}},
      {"no maker",
       [](json& j) {
         values_of(j, 0).push_back({{"id", 30}, {"bytes", 1}, {"kind", "intermediate"}});
       },
       {"no node makes value 30"}},
      {"a maker of an input",
       [](json& j) {
         node_of(j, 0, 1)["outputs"] = {4, 1};
       },
       {"node 'L0' makes value 1, a parameter or input"}},
      {"a maker of a parameter",
       [](json& j) { node_of(j, 0, 3)["outputs"] = {2}; },
       {"node 'U0' makes value 2, a parameter or input"}},
      {"forward after backward",
       [](json& j) { std::swap(node_of(j, 1, 1), node_of(j, 1, 2)); },
       {"forward node 'L1' of graph 'g1' comes after nodes of backward or update"}},
      {"forward after update",
       [](json& j) {
         node_of(j, 0, 1)["phase"] = "update";
         node_of(j, 0, 2)["phase"] = "forward";
       },
       {"forward node 'B0' of graph 'g0' comes after nodes of backward or update"}},
      {"a pair without forward",
       [](json& j) {
         for (json& n : j["graphs"][1]["nodes"]) n["phase"] = "backward";
       },
       {"graph 'g1' of a ring must have nodes of forward and of backward"}},
      {"a pair without backward",
       [](json& j) {
         for (json& n : j["graphs"][0]["nodes"]) n["phase"] = "forward";
       },
       {"graph 'g0' of a ring must have nodes of forward and of backward"}},
      {"no graph",
       [](json& j) { j["graphs"] = json::array(); },
       {"\"graphs\" has 0; there must be 1 to 100"}},
      {"101 graphs",
       [](json& j) {
         json empty = j["graphs"][0];
         for (json& n : empty["nodes"]) n["inputs"] = n["outputs"] = json::array();
         j["graphs"] = std::vector<json>(101, empty);
       },
       {"\"graphs\" has 101; there must be 1 to 100"}},
      {"a graph without nodes",
       [](json& j) { j["graphs"][1]["nodes"] = json::array(); },
       {"graph 'g1' has no nodes"}},
  };
  for (const Mistake& m : mistakes) {
    SCOPED_TRACE(m.what);
    json j = pair();
    m.make(j);
    expect_refused(j.dump(), m.words);
  }
}

TEST_F(MemoryProblemFile, NumbersOutOfRangeAreRefused) {
  const std::string least = "an integer from 0 to 1000000000000 is expected";
  struct Number {
    const char* place;  // a JSON pointer
    std::vector<json> wrong;
    std::string words;
  };
  const std::vector<Number> numbers{
      {"/static_bytes", {-1, 1'000'000'000'001, 1e300, 0.5, "8", nullptr}, least},
      {"/graphs/0/values/2/bytes", {-4, 1'000'000'000'001, ~std::uint64_t{0}, 4.5, true}, least},
      {"/graphs/0/values/2/id", {3.5, ~std::uint64_t{0}, "3"}, "an integer from "},
      {"/graphs/0/nodes/0/workspace_bytes", {-1, 1'000'000'000'001, 1.5, json::array()}, least},
      {"/graphs/0/nodes/0/run_ms", {-0.001, 1e11, "1", false}, "a number from 0 to 1e+10 is expected"},
      {"/link/bytes_per_ms", {-10, 1e16, "10", nullptr}, "a number from 0 to 1e+15 is expected"},
      {"/link/bytes_per_ms", {1e-4}, "it must be 0, for no link, or at least 0.001"},
      {"/graphs/0/nodes/0/inputs/0", {0.5, "1", json::array()}, "an integer from "},
  };
  for (const Number& n : numbers)
    for (const json& wrong : n.wrong) {
      json j = pair();
      j[json::json_pointer(n.place)] = wrong;
      SCOPED_TRACE(n.place + (" is " + wrong.dump()));
      const std::string place = n.place, key = place.substr(place.rfind('/') + 1);
      expect_refused(j.dump(), {n.words, key == "0" ? "\"inputs\"" : '"' + key + '"'});
    }
}

TEST_F(MemoryProblemFile, WrongListsAreRefused) {
  json j = pair();
  j["lists"] = {{"swap", {3}}, {"recompute", {13}}};
  const MemoryProblem p = read(j.dump());
  EXPECT_EQ(std::vector{2}, p.lists.swap);
  EXPECT_EQ(std::vector{7}, p.lists.recompute);
  EXPECT_EQ(to_json(p), to_json(read(to_json(p))));
  EXPECT_EQ(checksum_of(p), checksum_of(read(pair().dump()))) << "plans fit both";
  const std::vector<std::pair<json, const char*>> mistakes{
      {{{"swap", {99}}}, "\"lists\" names the value 99, which \"values\" has not"},
      {{{"recompute", {5}}}, "\"lists\" names value 5, which is no intermediate value that forward makes"},
      {{{"swap", {1}}}, "\"lists\" names value 1, which is no intermediate value"},
      {{{"swap", {3, 3}}}, "\"lists\" names value 3 twice"},
      {{{"swap", {3}}, {"recompute", {13, 3}}}, "\"lists\" names value 3 twice"},
      {{{"keep", {3}}}, "unknown key 'keep'"},
      {{{"swap", 3}}, "an array is expected"},
      {{{"swap", {"3"}}}, "is \"3\""},
      {json::array(), "an object is expected"}};
  for (const auto& [lists, words] : mistakes) {
    j["lists"] = lists;
    expect_refused(j.dump(), {words});
  }
}

// Every object of the file.
const std::vector<std::string> kObjects{"", "/link", "/graphs/0/values/2", "/graphs/1", "/graphs/1/nodes/2"};

TEST_F(MemoryProblemFile, UnknownAndMissingKeysAreRefused) {
  for (const std::string& place : kObjects) {
    SCOPED_TRACE(place);
    json j = pair();
    const json::json_pointer at(place);
    j[at]["colour"] = 1;
    expect_refused(j.dump(), {"unknown key 'colour'"});
    const json object = pair()[at];
    for (const auto& [key, value] : object.items()) {
      j = pair();
      j[at].erase(key);
      if (key == "duplex" || key == "workspace_bytes")
        EXPECT_NO_THROW(read(j.dump())) << key << " has a default";
      else
        expect_refused(j.dump(), {'"' + key + "\" is missing"});
    }
  }
  const std::string text = pair().dump();
  expect_refused("{\"static_bytes\": 8, " + text.substr(1), {"\"static_bytes\" is given twice"});
}

TEST_F(MemoryProblemFile, WrongTypesAreRefused) {
  const std::vector<std::pair<std::string, std::string>> types{{"/graphs", "an array"},
                                                               {"/graphs/0/values", "an array"},
                                                               {"/graphs/0/nodes", "an array"},
                                                               {"/graphs/1/nodes/2/inputs", "an array"},
                                                               {"/graphs/1/nodes/2/outputs", "an array"},
                                                               {"/link", "an object"},
                                                               {"/graphs/0/values/2", "an object"},
                                                               {"/graphs/1", "an object"},
                                                               {"/graphs/1/nodes/2", "an object"},
                                                               {"/graphs/1/name", "a text"},
                                                               {"/graphs/1/nodes/2/name", "a text"},
                                                               {"/graphs/1/nodes/2/phase", "a text"},
                                                               {"/graphs/0/values/2/kind", "a text"},
                                                               {"/link/duplex", "true or false"}};
  for (const auto& [place, words] : types)
    for (const json& wrong : {json(7), json(nullptr)}) {
      json j = pair();
      j[json::json_pointer(place)] = wrong;
      SCOPED_TRACE(place);
      expect_refused(j.dump(), {" is " + wrong.dump() + "; " + words + " is expected"});
    }
  json j = pair();
  node_of(j, 0, 0)["phase"] = "sideways";
  expect_refused(j.dump(), {"\"sideways\"", "\"forward\", \"backward\", \"update\""});
  j = pair();
  value_of(j, 0)["kind"] = "weight";
  expect_refused(j.dump(),
                 {"\"weight\"", "\"parameter\", \"gradient\", \"input\", \"intermediate\", \"output\""});
  expect_refused("[]", {"the top level is []; an object is expected"});
  expect_refused("", {"not valid JSON"});
  const std::string text = pair().dump();
  for (std::size_t n = 1; n < text.size(); n += 7) expect_refused(text.substr(0, n), {"not valid JSON"});
}

}  // namespace
}  // namespace tandem::testing
