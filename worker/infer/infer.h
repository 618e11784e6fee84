// What is done with a trained model: the commands of switchyard-worker that need no training. Each takes the words after its name and returns
// the process's exit code (schema/record/layout.h): 0 done, 1 failed, 2 bad usage or input.
#pragma once

int export_command(int argc, char **argv);
int import_command(int argc, char **argv);
int evaluate_command(int argc, char **argv);
int generate_command(int argc, char **argv);

extern const char export_usage[], import_usage[], evaluate_usage[], generate_usage[];
