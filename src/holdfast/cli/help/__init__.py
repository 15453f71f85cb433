"""The pages behind `--help` and `holdfast help`: text only. They touch nothing but standard output."""
