"""What readers see: charts, and the points behind them."""
