"""From run folders to rows, statistics, tables and figures. Reads files; knows neither torch nor how runs are made."""
