// A user's file: <tandem/tandem.h> provides everything under one namespace, and the engine's names stay free.
#include <tandem/tandem.h>

#include <gtest/gtest.h>

using namespace tandem;

struct Node {
  int value = 1;
};
struct Value {
  Node node;
};
struct Instruction {
  Value value;
};
struct Program {
  Instruction instruction;
};
struct Graph {};
struct Op {};
struct Tag {};
struct State {};
struct Host {};
struct Session {};
struct Lane {};
struct Trace {};
struct Kernel {};
struct Step {};
struct Wait {};
struct Cost {};
struct Span {
  Wait wait;
  Cost cost;
};
int run(const Program& program) { return program.instruction.value.node.value; }
int check(const Instruction& instruction) { return instruction.value.node.value; }
int hash(const Node& node) { return node.value; }
int verify(const Span&) { return 1; }

TEST(FrontDoor, LeavesTheEnginesNamesToItsUsers) {
  const Program program;
  EXPECT_EQ(4, run(program) + check(Instruction()) + hash(Node()) + verify(Span()));
  EXPECT_EQ(3, (Tensor::full({}, 1) + 2).item());  // and the functions of tensors are there
}
