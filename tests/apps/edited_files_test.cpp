// Files of a run, or of a report, that people have edited: they are theirs then.
#include <map>

#include <fmt/format.h>

#include "foreign_files.h"
#include "own_file.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// People edit a file that Tandem wrote, and run the same command again.
TEST_F(ForeignFiles, EditedFilesStay) {
  make_inputs();
  const auto edit = [&](const std::string& name, const std::string& from, const std::string& to) {
    std::string text = read_file(file(name));
    ASSERT_NE(std::string::npos, text.find(from)) << text;
    put(name, text.replace(text.find(from), from.size(), to));
  };
  const std::string sim = kTandem + "sim pipeline --profile " + file("predicted/stages.json"),
                    writes = sim + " --schedule dualpipe-async --write-schedule " + file("mine.json");
  ASSERT_TRUE(succeeds(writes));
  ASSERT_TRUE(succeeds(writes)) << "it is as it was written";
  edit("mine.json", "\"lane\": 1", "\"lane\": 0");
  expect_refused(writes, {"--write-schedule", "mine.json", "stays"});
  EXPECT_TRUE(succeeds(sim + " --schedule " + file("mine.json"))) << "it is read all the same";
  edit("predicted/plan.json", "\"cuts\"", " \"cuts\"");
  expect_refused(kTrain + "--arch mlp --steps 1 --force --output " + file("predicted"),
                 {"plan.json", "stays"});
  put("in/summary.csv", read_file(file("in/summary.csv")) + "mean of five runs: 93.1");  // no line end
  for (const char* how : {" --force", " --resume auto --steps 2"})
    expect_refused(kTrain + "--arch mlp --output " + file("in") + how, {"summary.csv", "stays"});
  expect_untouched();
}

// A killed run can leave a part of the last row.
TEST_F(ForeignFiles, ATableWhoseLastRowIsCutShortIsARuns) {
  const std::string table = "of,epoch,batch,train_loss\nepoch,0,1,2.5\n";
  for (const std::string cut : {"", "e", "epoch", "en", "end,", "epoch,1,2,-1.2"}) {
    put("table.csv", table + cut);
    EXPECT_EQ(apps::Found::own, apps::look_at(file("table.csv"), "table")) << cut;
  }
  for (const std::string other : {"epic", "mine", "epoch,1,2,3,4", "end,!"}) {
    put("table.csv", table + other);
    EXPECT_EQ(apps::Found::foreign, apps::look_at(file("table.csv"), "table")) << other;
  }
}

// A column or a word of one's own makes a table one's own, and a line makes a metrics.jsonl so.
TEST_F(ForeignFiles, AnnotatedRecordsOfARunStay) {
  const std::string job = kTrain + "--arch mlp --steps 2 --output ";
  ASSERT_TRUE(succeeds(job + file("run")));
  const std::string table = read_file(file("run/summary.csv")),
                    batches = read_file(file("run/metrics.jsonl"));
  const std::size_t line = table.find('\n');
  for (const std::string& mine :
       {table.substr(0, line) + ",comment" + table.substr(line),
        std::string(table).replace(line + 1, 7, "epoch,good"),
        table.substr(0, line) + "\nepoch,good" + table.substr(table.find(',', table.find(',', line) + 1))}) {
    put("run/summary.csv", mine);
    EXPECT_EQ(apps::Found::foreign, apps::look_at(file("run/summary.csv"), "table")) << mine;
    for (const char* how : {" --force", " --resume auto --steps 3"})
      expect_refused(kTrain + "--arch mlp --output " + file("run") + how, {"summary.csv", "stays"});
    expect_untouched();
  }
  foreign_.clear();
  write("run/summary.csv", table);
  put("run/metrics.jsonl", batches + "{\"note\": \"mine\"}\n");
  expect_refused(job + file("run") + " --force", {"metrics.jsonl", "changed since", "stays"});
  expect_untouched();
  foreign_.clear();
  ASSERT_TRUE(succeeds(kTrain + "--arch mlp --output " + file("run") + " --resume auto --steps 3"));
  const std::string all = read_file(file("run/metrics.jsonl"));
  EXPECT_TRUE(all.starts_with(batches + "{\"note\": \"mine\"}\n{\"epoch\"")) << all;
}

// With a thousand models, a row has more characters than std::regex can match.
TEST_F(ForeignFiles, LongRowsOfATableAreRead) {
  std::string head = "of,epoch,batch,train_loss", row = "epoch,0,1,2.5";
  for (int i = 0; i < 20000; ++i) head += fmt::format(",train_loss_{}", i), row += ",-1.25e-05";
  put("run/summary.csv", head + "\n" + row + "\n");
  EXPECT_EQ(apps::Found::own, apps::look_at(file("run/summary.csv"), "table"));
  put("run/summary.csv", head + "\n" + row + ",!\n");
  expect_refused(kTrain + "--arch mlp --steps 1 --output " + file("run"), {"summary.csv", "stays"});
}

TEST_F(ForeignFiles, AnEditedFileOfAReportStays) {
  const std::string report = kTandem + "reproduce libra --output " + file("page");
  ASSERT_TRUE(succeeds(report));
  EXPECT_TRUE(succeeds(report + " --force"));
  for (const std::string name : {"fig1a.csv", "fig1a.svg", "index.html"}) {
    const std::string text = read_file(file("page/" + name));
    put("page/" + name, "mine\n" + text);
    expect_refused(report + " --force", {name, "no report of this version wrote", "stays"});
    expect_untouched();
    write("page/" + name, text);
    foreign_.clear();
  }
  put("page/index.html", read_file(file("page/index.html")) + "<p>mine, behind the list of files</p>\n");
  expect_refused(report + " --force", {"index.html", "no report of this version wrote", "stays"});
  expect_untouched();
}

// Without its manifest, or with another one, nothing says that the weights are a run's.
TEST_F(ForeignFiles, WeightsOfACheckpointWithAnotherManifestStay) {
  const std::string job = kTrain + "--arch mlp --steps 1 --output " + file("run"),
                    step = "run/checkpoints/step-1/";
  ASSERT_TRUE(succeeds(job));
  const std::string manifest = read_file(file(step + "manifest.json"));
  put(step + "model.safetensors", "mine");
  for (const std::string& other : {manifest + "\n", manifest.substr(0, manifest.size() / 2), std::string("{}")}) {
    write(step + "manifest.json", other);
    expect_refused(job + " --force", {"step-1/manifest.json", "stays"});
  }
  fs::remove(file(step + "manifest.json"));
  expect_refused(job + " --force", {"checkpoints/step-1", "stays"});
  expect_untouched();
}

// The files of a run that people edit are theirs then.
TEST_F(ForeignFiles, AnEditedConfigurationOrTableStays) {
  const std::string job = kTrain + "--arch mlp --steps 2 --output ";
  ASSERT_TRUE(succeeds(job + file("run")));
  const std::string config = read_file(file("run/config.toml")), table = read_file(file("run/summary.csv"));
  for (const auto& [name, text] : std::map<std::string, std::string>{
           {"config.toml", config + "# my notes\n"}, {"summary.csv", table + "mean,of,my,five,runs\n"}}) {
    put("new/" + name, text);
    expect_refused(job + file("new"), {name, "no run of this version wrote", "stays"});
    fs::rename(file("new/" + name), file(name));
    foreign_.clear();
  }
  // A run that goes on leaves an edited configuration, also one that it reads.
  put("run/config.toml", config + "steps = 5\n");
  expect_refused(job + file("run") + " --force", {"config.toml", "stays"});
  put("run/config.toml", "arch = \"mlp\"\nsteps = 5\n");
  EXPECT_TRUE(
      succeeds(kTrain + "--config " + file("run/config.toml") + " --resume auto --output " + file("run")));
  EXPECT_EQ(5u, metrics().size());
  expect_untouched();
}

}  // namespace
}  // namespace tandem::testing
