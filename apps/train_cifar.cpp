// Trains an image classifier on CIFAR-10 or CIFAR-100, or on drawn images of the same form.
#include "train_program.h"

int main(int argc, char** argv) { return tandem::apps::train(argc, argv); }
